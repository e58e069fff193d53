"""All that serves a policy from scratch.

The agent's knowledge from its own past, the compact prompt, the vocabulary, the
searching expert and its habits.
"""

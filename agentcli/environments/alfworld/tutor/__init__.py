"""What serves a policy from scratch: the agent's knowledge from its own past, the
compact prompt, the vocabulary, the searching expert and its habits.
"""

"""All that serves a policy from scratch: a short prompt, words, a searching expert."""

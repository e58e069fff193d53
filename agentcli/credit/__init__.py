"""Trees to credit: one file per method, one dict in registry.py. Knows records only: no
torch, no environment, no policy.
"""

"""Trees to credit: one file per method, named in registry.py. Knows records only."""

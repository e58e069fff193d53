"""Growing trees: one file per method, each reading like its paper's algorithm box;
actor.py does the rest.
"""

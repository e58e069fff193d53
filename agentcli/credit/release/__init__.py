"""The authors' released code, where it differs from their paper (`form: release`).

There is one file per method, only for comparison with published numbers. The walk over
a tree, the search and the normalisation are our own code. Tests compare these files
with golden vectors from the released code (tests/golden).
"""

"""The authors' released code where it is not what their paper defines (`form: release`).

One file a method, only for comparison with published numbers. The walk over a tree, the
search and the normalisation are ours; golden vectors of the released code hold these
files to it (tests/golden).
"""

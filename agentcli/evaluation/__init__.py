"""Metrics, intervals and paired tests of a policy, computed from records. Knows records
only.
"""

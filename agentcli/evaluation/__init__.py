"""Metrics, intervals and paired tests of a policy. Knows records only."""

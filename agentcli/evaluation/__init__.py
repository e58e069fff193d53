"""What trees say about a policy: metrics, intervals, paired tests. Knows records only."""

"""Growing trees: one file per method, which reads like its paper's algorithm box."""

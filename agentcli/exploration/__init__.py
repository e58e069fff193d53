"""Growing trees: one module per method, written like the paper's algorithm box."""

"""The page itself: its frame, its scripts and its style sheet."""

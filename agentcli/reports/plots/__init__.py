"""Pictures of runs, drawn by matplotlib."""

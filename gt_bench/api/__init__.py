"""`evaluate` for notebooks and scripts."""

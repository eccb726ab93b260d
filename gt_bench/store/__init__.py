"""Records of runs, weights, and records shipped with the repository."""

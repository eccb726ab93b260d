"""Records that travel: what real cells left behind, one compressed file per cell, shipped with the repository."""

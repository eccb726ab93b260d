"""Results and datasets in formats of other projects: `gt-bench export`."""

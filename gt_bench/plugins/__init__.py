"""User-supplied models and datasets."""

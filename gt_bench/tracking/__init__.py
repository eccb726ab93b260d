"""MLflow as a mirror of the records; the only package that imports MLflow."""

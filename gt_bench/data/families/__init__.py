"""Dataset families: one module per family, each with a list `DATASETS`."""

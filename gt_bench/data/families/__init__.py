"""Dataset families: each module with a list `DATASETS` is one."""

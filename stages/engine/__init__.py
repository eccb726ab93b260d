"""The training engine. It reads no file of its own accord and knows no model, dataset or task by name."""

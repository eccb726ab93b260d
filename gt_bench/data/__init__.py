"""Datasets: registry, download, packing."""

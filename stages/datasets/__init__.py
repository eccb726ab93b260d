"""Datasets: what exists (catalog), where it comes from (sources), how it is stored (packed), and one file per family."""

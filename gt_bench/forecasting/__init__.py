"""Estimated time of cells."""

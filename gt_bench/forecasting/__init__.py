"""Estimated time, memory and disk space of cells."""

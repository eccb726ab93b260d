"""Comparisons with the code that authors released."""

"""Intervals, equivalence tests and paired tests."""

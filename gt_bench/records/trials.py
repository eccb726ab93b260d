"""Columns of the table of trials of a search, `tuned/<cell>.csv`."""

COST = "objective."  # prefix of the columns of further objectives
DESCRIBED = ("number", "state", "value", "status", "direction", "origin")  # columns that are no parameter

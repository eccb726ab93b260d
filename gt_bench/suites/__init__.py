"""Suites as folders of data: make one, check one, and move a workspace of the layout before."""

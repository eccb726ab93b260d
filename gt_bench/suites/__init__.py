"""Suites as folders of data: create one, check one, and migrate a workspace of the former layout."""

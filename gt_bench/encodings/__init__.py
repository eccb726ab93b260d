"""Encodings of a dataset, computed once and cached."""

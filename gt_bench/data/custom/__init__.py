"""Readers of user-supplied data."""

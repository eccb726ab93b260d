"""Readers of users' own data."""

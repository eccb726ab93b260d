"""Freshness of shipped records, and their export and import."""

"""Sentences and theorems of papers, tested with records and experiments."""

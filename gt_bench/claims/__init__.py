"""Claims of papers, tested with records and experiments."""

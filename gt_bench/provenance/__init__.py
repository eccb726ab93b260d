"""Whether shipped records are up to date; export and import."""

"""The baselines."""

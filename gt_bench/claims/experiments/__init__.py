"""Registry of experiments behind claims, and helpers that they share."""

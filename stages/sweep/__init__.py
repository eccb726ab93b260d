"""Many runs: what is missing, what it costs, in which order it is worth its hours, and who computes it."""

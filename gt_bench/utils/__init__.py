"""Files, locks, errors, text formats and code digests."""

"""Files, locks, errors, formats and the code digest."""

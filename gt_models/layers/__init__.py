"""Parts that two or more models share."""

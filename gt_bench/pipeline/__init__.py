"""What each DVC stage does."""

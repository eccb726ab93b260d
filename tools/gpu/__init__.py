"""One command for a GPU that is available for minutes: checks, profiles, the most valuable runs, one archive."""

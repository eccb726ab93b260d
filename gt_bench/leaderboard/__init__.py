"""Rows, columns and verdicts of the leaderboard."""

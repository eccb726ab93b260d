"""Runs side by side on one machine: processes and what holds them, the seeds of a cell, and cells."""

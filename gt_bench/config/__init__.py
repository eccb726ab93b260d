"""Recipes, the grid and run settings."""

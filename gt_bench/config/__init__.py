"""Recipes, params.yaml and the grid of cells: their schemas, and reading and checking them."""

"""Golden runs: short runs of all cells on small data, whose values are compared with stored ones."""

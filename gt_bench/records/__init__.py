"""The waist of the benchmark: what runs and cells produced, as frozen objects with the shape of their files."""

"""Computations behind claims, one module each."""

"""Tests of claims, by kind of claim."""

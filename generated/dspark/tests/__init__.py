"""Equivalence tests of the generated groups."""

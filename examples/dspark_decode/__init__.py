"""A small serving loop around the generated DSpark decode step; `run.py` is where it starts."""

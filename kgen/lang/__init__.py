"""Expression text to typed, frozen nodes; Python's own `ast` does the parsing."""

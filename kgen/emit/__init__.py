"""A plan to text; Jinja only lays out files."""

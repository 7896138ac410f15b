"""YAML with positions to a frozen model; collects every error; the JSON Schema for editors."""

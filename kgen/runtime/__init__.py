"""What generated code calls; each module is copied into every generated package."""

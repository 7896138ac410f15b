"""No chains yet."""

"""What is proved about a group."""

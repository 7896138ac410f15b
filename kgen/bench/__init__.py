"""Measuring: kernel launches and the time of a CUDA graph's replay. Needs torch and triton alone."""

"""kgen turns declarative YAML specs into fused GPU kernels."""

__version__ = "0.1.0"

"""warpfactor: smooth, invertible registration of medical images."""

__version__ = "0.1.0"

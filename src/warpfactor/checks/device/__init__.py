"""The kernels of a device against the plain PyTorch reference: problems, comparison, timing, and what has passed."""

"""How the CPU kernels are compiled by Numba and stored on disk."""

"""How the CPU kernels are compiled by Numba and kept on disk."""

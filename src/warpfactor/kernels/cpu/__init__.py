"""Fused CPU kernels in Numba, with the signatures and meaning of `warpfactor.kernels.reference`."""

from .descent import adam, descend, norms, tile
from .field import compose, invert, jacobian_determinant, resize
from .labels import sample_labels
from .linear import affine_gradient, affine_moments
from .lncc import lncc
from .mi import mi
from .mse import mse
from .sample import sample, sample_gradient
from .smooth import smooth_box, smooth_gaussian

__all__ = [
    "adam",
    "affine_gradient",
    "affine_moments",
    "compose",
    "descend",
    "invert",
    "jacobian_determinant",
    "lncc",
    "mi",
    "mse",
    "norms",
    "resize",
    "sample",
    "sample_gradient",
    "sample_labels",
    "smooth_box",
    "smooth_gaussian",
    "tile",
]

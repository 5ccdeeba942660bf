"""Fused CPU kernels in Numba, with the signatures and meaning of `warpfactor.kernels.reference`."""

from ..sources import are_steady
from .compose import compose
from .descent import adam, descend, norms, tile
from .field import invert, jacobian_determinant, resize, round_trip
from .labels import sample_labels
from .linear import affine_gradient, affine_moments
from .lncc import lncc, lncc_room
from .mi import mi
from .mse import mse
from .sample import sample, sample_gradient
from .shrink import shrink
from .smooth import smooth_box, smooth_gaussian
from .spans import lncc_spans
from .statistics import percentiles, tally

are_steady()  # now that all kernels are imported

__all__ = [
    "adam",
    "affine_gradient",
    "affine_moments",
    "compose",
    "descend",
    "invert",
    "jacobian_determinant",
    "lncc",
    "lncc_room",
    "lncc_spans",
    "mi",
    "mse",
    "norms",
    "percentiles",
    "resize",
    "round_trip",
    "sample",
    "sample_gradient",
    "sample_labels",
    "shrink",
    "smooth_box",
    "smooth_gaussian",
    "tally",
    "tile",
]

"""Plain PyTorch kernels for any device and float type: the definition of every operation.

Volumes are (D, H, W) in array order (z, y, x), displacements (3, D, H, W) in voxels, 2-D is D == 1.
"""

from warpfactor.kernels.reference.descent import adam, descend, norms, tile
from warpfactor.kernels.reference.field import compose, invert, jacobian_determinant, resize, round_trip
from warpfactor.kernels.reference.labels import sample_labels
from warpfactor.kernels.reference.linear import affine_gradient, affine_moments
from warpfactor.kernels.reference.lncc import lncc, lncc_room, lncc_spans
from warpfactor.kernels.reference.mi import mi
from warpfactor.kernels.reference.mse import mse
from warpfactor.kernels.reference.sample import sample, sample_gradient
from warpfactor.kernels.reference.shrink import shrink
from warpfactor.kernels.reference.smooth import smooth_box, smooth_gaussian
from warpfactor.kernels.reference.statistics import percentiles, tally

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

_lncc = lncc


def lncc_plans(fixed, mask, *, radius, window, exact, floors):  # type: ignore
    return (None,) * len(fixed)


def lncc(*args, plan=None, **options):  # type: ignore
    return _lncc(*args, **options)

"""The definition of every operation, in plain PyTorch, for any device and floating-point type.

Volumes are (D, H, W) in array order (z, y, x); displacements are (3, D, H, W), in voxels. 2-D images have D = 1.
"""

from warpfactor.kernels.reference.decide import decide
from warpfactor.kernels.reference.descent import adam, descend, norms, smooth_adam, smooth_descend, tile
from warpfactor.kernels.reference.distortion import distortion
from warpfactor.kernels.reference.field import (
    advance,
    compose,
    even_out,
    invert,
    jacobian_determinant,
    log_volume,
    resize,
    round_trip,
    take,
)
from warpfactor.kernels.reference.labels import sample_labels
from warpfactor.kernels.reference.linear import affine_gradient, affine_moments
from warpfactor.kernels.reference.lncc import lncc, lncc_plans, lncc_slabs
from warpfactor.kernels.reference.mi import mi
from warpfactor.kernels.reference.mind import mind, mind_channels
from warpfactor.kernels.reference.mse import mse
from warpfactor.kernels.reference.sample import sample, sample_gradient
from warpfactor.kernels.reference.shrink import shrink
from warpfactor.kernels.reference.smooth import smooth_box, smooth_gaussian, smooth_share
from warpfactor.kernels.reference.statistics import percentiles, tally

__all__ = [
    "adam",
    "advance",
    "affine_gradient",
    "affine_moments",
    "compose",
    "decide",
    "descend",
    "distortion",
    "even_out",
    "invert",
    "jacobian_determinant",
    "lncc",
    "lncc_plans",
    "lncc_slabs",
    "log_volume",
    "mi",
    "mind",
    "mind_channels",
    "mse",
    "norms",
    "percentiles",
    "resize",
    "round_trip",
    "sample",
    "sample_gradient",
    "sample_labels",
    "shrink",
    "smooth_adam",
    "smooth_box",
    "smooth_descend",
    "smooth_gaussian",
    "smooth_share",
    "take",
    "tally",
    "tile",
]

"""CPU kernels, compiled by Numba, with the signatures and the meaning of those in `warpfactor.kernels.reference`."""

# isort: off
from warpfactor.kernels.numba._compile.digest import sources_are_unchanged  # before any kernel is imported

# isort: on
from warpfactor.kernels.numba.compose import compose
from warpfactor.kernels.numba.descent import adam, descend, norms
from warpfactor.kernels.numba.distortion import distortion
from warpfactor.kernels.numba.field import invert, jacobian_determinant, resize, round_trip
from warpfactor.kernels.numba.labels import sample_labels
from warpfactor.kernels.numba.linear import affine_gradient, affine_moments
from warpfactor.kernels.numba.lncc import lncc, lncc_plans, lncc_slabs
from warpfactor.kernels.numba.mi import mi
from warpfactor.kernels.numba.mind import mind
from warpfactor.kernels.numba.mind_channels import mind_channels
from warpfactor.kernels.numba.mse import mse
from warpfactor.kernels.numba.sample import sample, sample_gradient
from warpfactor.kernels.numba.shrink import shrink
from warpfactor.kernels.numba.smooth import smooth_box, smooth_gaussian
from warpfactor.kernels.numba.statistics import percentiles, tally
from warpfactor.kernels.numba.tile import tile

sources_are_unchanged()  # asked, and remembered, now that all kernels are imported

__all__ = [
    "adam",
    "affine_gradient",
    "affine_moments",
    "compose",
    "descend",
    "distortion",
    "invert",
    "jacobian_determinant",
    "lncc",
    "lncc_plans",
    "lncc_slabs",
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
    "smooth_box",
    "smooth_gaussian",
    "tally",
    "tile",
]

"""The GPU form of every operation, in Triton; experimental until a device has passed its check.

Only `warpfactor.kernels` imports this package, and only when the backend is chosen, so that nothing without Triton pays
for it. Kernels compute in single precision; sums are taken in double precision, per program and then in a fixed order,
so that a run repeats bit for bit. Every kernel declares, beside its code, its argument types and the bytes it moves per
voxel (`kernel.py`); `catalogue.py` lists them all.

What goes to the PyTorch reference, on the same device:

| operation | when |
|---|---|
| `sample_labels`, `percentiles` | always: once a level, or once a run |
| `sample`, `sample_gradient` | images of whole numbers or double precision |
| `lncc` | windows of more than 15 voxels |
| `mi` | more than 64 bins |
| `tile` | windows of more than 15 voxels |
| `distortion` | grids of one voxel along y or x |
| any | double precision, or more than 2^31 voxels |
"""

import sys

from warpfactor.kernels.held import Unwaited
from warpfactor.kernels.reference import percentiles, sample_labels
from warpfactor.kernels.triton.decide import decide
from warpfactor.kernels.triton.descent import adam, descend, norms
from warpfactor.kernels.triton.distortion import distortion
from warpfactor.kernels.triton.field import (
    compose,
    even_out,
    jacobian_determinant,
    resize,
    round_trip,
    take,
)
from warpfactor.kernels.triton.fused import advance, log_volume, smooth_adam, smooth_descend
from warpfactor.kernels.triton.inverse import invert
from warpfactor.kernels.triton.linear import affine_gradient, affine_moments
from warpfactor.kernels.triton.lncc import lncc, lncc_plans, lncc_slabs
from warpfactor.kernels.triton.mi import mi
from warpfactor.kernels.triton.mind import mind
from warpfactor.kernels.triton.mind_channels import mind_channels
from warpfactor.kernels.triton.mse import mse
from warpfactor.kernels.triton.sample import sample, sample_gradient
from warpfactor.kernels.triton.shrink import shrink
from warpfactor.kernels.triton.smooth import smooth_box, smooth_gaussian, smooth_share
from warpfactor.kernels.triton.statistics import tally
from warpfactor.kernels.triton.tile import tile

on_device = Unwaited(lambda: sys.modules[__name__])

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
    "on_device",
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

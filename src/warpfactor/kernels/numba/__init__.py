"""Fused CPU kernels in Numba, with the signatures and meaning of `warpfactor.kernels.reference`."""

# isort: off
from warpfactor.kernels.numba._compile.digest import are_steady  # first, before a kernel is read

# isort: on
from warpfactor.kernels.numba.compose import compose
from warpfactor.kernels.numba.descent import adam, descend, norms, tile
from warpfactor.kernels.numba.field import invert, jacobian_determinant, resize, round_trip
from warpfactor.kernels.numba.labels import sample_labels
from warpfactor.kernels.numba.linear import affine_gradient, affine_moments
from warpfactor.kernels.numba.lncc.metric import lncc, lncc_room
from warpfactor.kernels.numba.lncc.spans import lncc_spans
from warpfactor.kernels.numba.mi import mi
from warpfactor.kernels.numba.mse import mse
from warpfactor.kernels.numba.sample import sample, sample_gradient
from warpfactor.kernels.numba.shrink import shrink
from warpfactor.kernels.numba.smooth import smooth_box, smooth_gaussian
from warpfactor.kernels.numba.statistics import percentiles, tally

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

_lncc = lncc


def lncc_plans(fixed, mask, *, radius, window, exact, floors):  # type: ignore
    every = [lncc_spans(f, mask, radius=radius, flat=flat, exact=exact) for f, flat in zip(fixed, floors, strict=True)]
    room = lncc_room(fixed.shape[1:], radius, window, every)
    return tuple((room, spans) for spans in every)


def lncc(*args, plan=None, **options):  # type: ignore
    room, spans = plan or (None, None)
    return _lncc(*args, room=room, spans=spans, **options)

"""The operations of a registration on some planes of an image: the kernels of this backend, and sums plane by plane.

Arrays have the shape of the whole image; an operation computes planes z0 <= z < z1 and reads as many around them as it
says (`reach` functions). A plane gets the same bits whichever planes are computed with it, and sums over an image are
made from those of its planes in one order: so processes that share the planes of an image find what one process finds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from warpfactor.kernels.buffers import new_field
from warpfactor.kernels.numba._compile.jit import exclusive
from warpfactor.kernels.numba.arrays import array, check_field, gradient_array, pair_arrays, target
from warpfactor.kernels.numba.compose import compose_arrays, compose_planes
from warpfactor.kernels.numba.descent import (
    FORMS,
    descend_rows,
    figures,
    norms_of_rows,
    single_precision,
    step_figures_of_planes,
)
from warpfactor.kernels.numba.field import jacobian_of_planes, resize_arrays, resize_planes
from warpfactor.kernels.numba.lncc.kernel import FRESH, checked_plan, lncc_arguments, lncc_of_planes, lncc_total
from warpfactor.kernels.numba.lncc.plan import Division, lncc_divisions, make_plans
from warpfactor.kernels.numba.mind import mind_arrays, mind_of_planes
from warpfactor.kernels.numba.mse import mse_of_planes, mse_settings
from warpfactor.kernels.numba.smooth import field_taps, filter_along_z, filter_planes

Planes = tuple[int, int]

__all__ = [
    "Division",
    "compose",
    "descend",
    "figures",
    "jacobian_determinant",
    "lncc",
    "lncc_divisions",
    "lncc_reach",
    "lncc_total",
    "make_plans",
    "mind",
    "mse",
    "norms",
    "resize",
    "resize_reach",
    "smooth_along_z",
    "smooth_in_planes",
    "smooth_reach",
]


def lncc_reach(planes: Planes, depth: int, radius: int) -> Planes:
    """The planes of the displacement, and of the fixed image, that `lncc` reads."""
    z0, z1 = planes
    return max(0, min(z0 // FRESH * FRESH - 2 * radius, z0 - 1)), min(depth, z1 + max(2 * radius, 1))


@exclusive
def lncc(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    planes: Planes,
    *,
    radius: tuple[int, int, int],
    window: str,
    squared: bool,
    exact: bool,
    symmetric: bool,
    flat: tuple[float, float],
    gradient: Tensor | None,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
    plan: object,
) -> Any:
    """(blocks, 2, D): totals and counts of every block's planes, for `lncc_total`.

    Of the gradient, planes within reach are overwritten, too, with nothing of use.
    """
    made = checked_plan(plan, tuple(fixed.shape), radius, window)
    images = pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    flags = (window == "box", squared, exact, symmetric, gradient is not None)
    grad = gradient_array(gradient, fixed.shape)
    return lncc_of_planes(*images, *lncc_arguments(made, flat, flags, grad), *planes)


@exclusive
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    planes: Planes,
    *,
    gradient: Tensor | None,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
    alike: tuple[float, float],
    symmetric: bool,
    demons: float | None,
    lengths: tuple[float, float, float],
) -> Any:
    """(2, D) totals and counts of the planes; it reads a plane more of the fixed image on both sides."""
    images = pair_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    settings = mse_settings(alike, symmetric, demons, lengths)
    return mse_of_planes(*images, *settings, gradient is not None, gradient_array(gradient, fixed.shape), *planes)


@exclusive
def mind(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    planes: Planes,
    *,
    gradient: Tensor | None,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
    symmetric: bool,
) -> Any:
    """(2, D) totals and counts of the planes; it reads a plane more of the fixed image on both sides."""
    arrays = mind_arrays(fixed, moving, displacement, matrix, fixed_mask, moving_mask)
    wanted = gradient is not None, gradient_array(gradient, tuple(fixed.shape[:3]))
    return mind_of_planes(*arrays, symmetric, *wanted, *planes)


@exclusive
def norms(gradient: Tensor, weights: Sequence[float], planes: Planes) -> Any:
    """(3, planes) the figures of `norms` for each plane."""
    check_field("gradient", gradient)
    rows = norms_of_rows(array(gradient), single_precision(weights), *planes)
    return rows.reshape(3, planes[1] - planes[0], gradient.shape[2]).sum(2)


@exclusive
def descend(
    gradient: Tensor, planes: Planes, *, form: str, damping: float, weights: Sequence[float], residual: float
) -> Any:
    """(2, planes) of which `figures` makes the longest step and the predicted decrease."""
    check_field("gradient", gradient)
    rows = descend_rows(target(gradient), FORMS[form], damping, single_precision(weights), residual, *planes)
    if planes[0] == planes[1]:
        return np.zeros((2, 0))
    return step_figures_of_planes(rows, gradient.shape[2])


@exclusive
def compose(warp: Tensor, step: Tensor, scale: float, out: Tensor, planes: Planes) -> None:
    """Compose the planes; of `warp` those are read that the step leads to, and one more."""
    compose_planes(*compose_arrays(warp, step, scale, out), *planes)


def resize_reach(planes: Planes, depth: int, scale: float, offset: float) -> Planes:
    """The planes of a field of this depth that `resize` reads."""
    if planes[0] == planes[1]:
        return 0, 0
    low, high = (min(max(scale * z + offset, 0.0), depth - 1.0) for z in (planes[0], planes[1] - 1))
    return max(0, int(low) - 1), min(depth, int(high) + 3)


@exclusive
def resize(field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float], planes: Planes) -> Any:
    """(C, *shape) of which the planes are computed."""
    out = new_field((field.shape[0], *shape), dtype=field.dtype)
    resize_planes(*resize_arrays(field, scale, offset, out), *planes)
    return out


@exclusive
def jacobian_determinant(displacement: Tensor, planes: Planes) -> Tensor:
    """(D, H, W) of which the planes are computed; it reads a plane more on both sides."""
    check_field("displacement", displacement)
    out = new_field(tuple(displacement.shape[1:]), dtype=displacement.dtype)
    jacobian_of_planes(array(displacement), target(out), *planes)
    return out


def smooth_reach(
    field: Tensor, sigma: Sequence[float], boundary: str, truncate: float, tail: tuple[float, float]
) -> int:
    """How many planes on both sides `smooth_along_z` reads."""
    return len(field_taps(field, sigma, boundary, truncate, tail)[0]) // 2


@exclusive
def smooth_in_planes(
    field: Tensor,
    planes: Planes,
    sigma: Sequence[float],
    *,
    boundary: str,
    truncate: float,
    tail: tuple[float, float],
) -> None:
    """Smooth the planes along y and x, in place."""
    _, ty, tx = field_taps(field, sigma, boundary, truncate, tail)
    for component in field:
        filter_planes(target(component[None, slice(*planes)]), ty, tx, boundary == "zero")


@exclusive
def smooth_along_z(
    field: Tensor,
    planes: Planes,
    sigma: Sequence[float],
    *,
    boundary: str,
    truncate: float,
    tail: tuple[float, float],
) -> None:
    """Smooth the planes along z, in place, once they and those within reach are smoothed along y and x."""
    tz, _, _ = field_taps(field, sigma, boundary, truncate, tail)
    if planes[0] < planes[1]:
        filter_along_z(target(field), *planes, tz, boundary == "zero")

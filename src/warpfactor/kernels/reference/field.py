"""Operations on displacement fields, which are in voxels of their own grid."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import (
    exact_type,
    interpolate,
    interpolate_gradient,
    voxel_indices,
    working_type,
)
from warpfactor.kernels.reference.smooth import Boundary, central_difference, smooth_gaussian, smooth_share

Matrix = Sequence[Sequence[float]]

FIXED_POINT = 2  # iterations of `invert` before it changes to Newton's method
PART = 1 << 18  # voxels of which points are computed at once; about 200 bytes each
SINGULAR = 1e-3  # determinant below which Newton's method is not used


@torch.no_grad()
def compose(warp: Tensor, step: Tensor, *, scale: float = 1.0, out: Tensor | None = None) -> Tensor:
    """Displacement of "step, then warp": x -> s step(x) + warp(x + s step(x)), s = scale.

    Args:
        warp, step: (3, D, H, W) displacements on one grid. Beyond the border `warp` keeps its edge value,
            so constant shifts compose exactly.
        scale: Length of the step to take.
        out: Where to write the result; may be `step` itself.
    """
    out = torch.empty_like(step) if out is None else out
    for part in parts_of(step.shape[1:]):
        scaled = scale * step[(slice(None), *part)]
        out[(slice(None), *part)] = scaled + _displaced(warp, scaled, part)
    return out


@torch.no_grad()
def take(field: Tensor, other: Tensor, flag: Tensor) -> None:
    """Overwrite the field with the other one if the flag, without axes, is not zero."""
    field.copy_(torch.where(flag != 0, other, field))


@torch.no_grad()
def even_out(step: Tensor, log_volume: Tensor, rate: Tensor, weights: Sequence[float]) -> None:
    """Add rate * weights² * grad(log_volume) to a step (3, D, H, W), by central differences; at a border nothing."""
    for axis, (weight, n) in enumerate(zip(weights, log_volume.shape, strict=True)):
        if n > 2 and weight > 0:
            part, half = step[axis].narrow(axis, 1, n - 2), (0.5 * rate * weight * weight).to(step.dtype)
            part.addcmul_(log_volume.narrow(axis, 2, n - 2), half)
            part.addcmul_(log_volume.narrow(axis, 0, n - 2), half, value=-1)


@torch.no_grad()
def advance(
    warp: Tensor,
    step: Tensor,
    *,
    scale: Any,
    sigma: Sequence[float],
    share: Any = 1.0,
    boundary: Boundary = "nearest",
    truncate: float = 3.0,
    log_volume: Tensor | None = None,
    rate: Any = 0.0,
    weights: Sequence[float] = (0.0, 0.0, 0.0),
) -> Tensor:
    """Overwrite a step with the warp after it: `even_out` if there is a volume, `compose`, and a Gaussian.

    Args:
        scale: of the step.
        sigma, share: the Gaussian has a variance of share * sigma²; see `smooth_share`.
        log_volume, rate, weights: see `even_out`.
    """
    if log_volume is not None:
        even_out(step, log_volume, rate, weights)
    compose(warp, step, scale=scale, out=step)
    if isinstance(share, Tensor):
        return smooth_share(step, sigma, share, boundary=boundary, truncate=truncate)
    return smooth_gaussian(step, [share**0.5 * s for s in sigma], boundary=boundary, truncate=truncate)


@torch.no_grad()
def round_trip(first: Tensor, second: Tensor, gram: Matrix) -> tuple[Tensor, Tensor]:
    """Distance of every voxel from its image under "first, then second", and whether it stays in the grid in between.

    Args:
        first, second: (3, D, H, W) displacements on one grid; `second` keeps its edge value beyond the border.
        gram: Symmetric 3x3 matrix; eᵀ gram e is the squared length of a vector e in voxels.

    Returns:
        (D, H, W) lengths of e = first(x) + second(x + first(x)); (D, H, W) bool, whether x + first(x) lies between the
        outermost voxel centres.
    """
    error = compose(second, first).to(working_type(first))
    weights = torch.as_tensor(gram, dtype=error.dtype, device=error.device)
    lengths = torch.einsum("azyx,ab,bzyx->zyx", error, weights, error).clamp_(min=0).sqrt_()
    stays = torch.ones_like(lengths, dtype=torch.bool)
    for index, u, n in zip(voxel_indices(lengths.shape, first.device), first, lengths.shape, strict=True):
        stays &= (index + u >= 0) & (index + u <= n - 1)
    return lengths.to(first.dtype), stays


@torch.no_grad()
def resize(field: Tensor, shape: Sequence[int], scale: Sequence[float], offset: Sequence[float]) -> Tensor:
    """(C, *shape): the value at index i is that of `field` at scale i + offset, by linear interpolation.

    Beyond the border the edge value holds.

    Args:
        field: (C, D, H, W).
        shape: The three lengths of the result.
        scale, offset: Per axis z, y, x; positions are in voxels of `field`.
    """
    resized = field.to(working_type(field))
    for axis in range(3):
        n = resized.shape[axis + 1]
        index = torch.arange(shape[axis], dtype=exact_type(field.device), device=field.device)
        position = (scale[axis] * index + offset[axis]).clamp_(0, n - 1)
        low = position.floor().clamp_(max=max(n - 2, 0))
        fraction = (position - low).to(resized.dtype).reshape([-1 if a == axis else 1 for a in range(3)])
        first = low.long()
        second = (first + 1).clamp_(max=n - 1)
        resized = torch.lerp(resized.index_select(axis + 1, first), resized.index_select(axis + 1, second), fraction)
    return resized.to(field.dtype)


@torch.no_grad()
def jacobian_determinant(displacement: Tensor) -> Tensor:
    """det(I + du/dx), (D, H, W), by central differences, which are one-sided at the border.

    In 2-D (D = 1) there is no derivative along z, and the determinant is the 2-D one.
    """
    u = displacement.to(working_type(displacement))
    columns = [central_difference(u, axis) for axis in range(3)]
    for axis in range(3):
        columns[axis][axis] += 1
    (zz, yz, xz), (zy, yy, xy), (zx, yx, xx) = columns
    determinant: Tensor = zz * (yy * xx - yx * xy) - zy * (yz * xx - yx * xz) + zx * (yz * xy - yy * xz)
    return determinant.to(displacement.dtype)


@torch.no_grad()
def log_volume(
    displacement: Tensor,
    least: float,
    sigma: Sequence[float],
    *,
    boundary: Boundary = "nearest",
    truncate: float = 3.0,
) -> Tensor:
    """Logarithm of the Jacobian determinant, (D, H, W), or of `least` where it is less, after `smooth_gaussian`."""
    volume = jacobian_determinant(displacement).clamp_(min=least).log_()
    return smooth_gaussian(volume[None], sigma, boundary=boundary, truncate=truncate)[0]


@torch.no_grad()
def invert(
    displacement: Tensor, *, start: Tensor | None = None, iterations: int = 50, tolerance: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Inverse displacement v, for which v(x) + u(x + v(x)) = 0, and the norm of what remains of that sum.

    Every voxel iterates v <- v - q d on its own and keeps its best v. The first iterations are those of a fixed point,
    d = v + u(x + v), which is fast where u changes slowly. The later ones are Newton's, d = (I + du/dx)⁻¹ (v + u(x +
    v)) with the derivative of the linear interpolant, for the voxels where u is steep. The factor q is halved when
    the residual did not decrease and doubled, up to one, when it did.

    Args:
        displacement: (3, D, H, W), u. Beyond the border it keeps its edge value.
        start: Initial v, which is not changed; -u if None.
        iterations: Maximum number of updates of v.
        tolerance: Residual below which a voxel has converged, in voxels.

    Returns:
        v (3, D, H, W) and its residual |v(x) + u(x + v(x))| (D, H, W), in voxels.
    """
    best = -displacement if start is None else start.clone()
    places = voxel_indices(displacement.shape[1:], displacement.device)
    found, residual = solve_inverse(displacement, places, best, iterations=iterations, tolerance=tolerance)
    return found.to(displacement.dtype), residual.to(displacement.dtype)


@torch.no_grad()
def solve_inverse(
    displacement: Tensor, places: Sequence[Tensor], start: Tensor, *, iterations: int = 50, tolerance: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """What `invert` finds at some places.

    Args:
        displacement: (3, D, H, W), u.
        places: Three tensors of one shape, or of shapes that broadcast to it: the coordinates in voxels.
        start: (3, *shape), initial v.

    Returns:
        v (3, *shape) and its residual (*shape).
    """
    best = start
    gap = best + _moved(displacement, places, best)
    residual = torch.linalg.vector_norm(gap, dim=0)
    rate = torch.ones_like(residual)
    for k in range(iterations):
        if residual.max() < tolerance:
            break
        if k == FIXED_POINT:
            rate = torch.ones_like(residual)
        trial = best - rate * (gap if k < FIXED_POINT else _newton_direction(displacement, places, best, gap))
        trial_gap = trial + _moved(displacement, places, trial)
        trial_residual = torch.linalg.vector_norm(trial_gap, dim=0)
        better = (trial_residual < residual) & (residual >= tolerance)
        best = torch.where(better, trial, best)
        gap = torch.where(better, trial_gap, gap)
        residual = torch.where(better, trial_residual, residual)
        rate = torch.where(better, (2 * rate).clamp(max=1), rate / 2)
    return best, residual


def _newton_direction(displacement: Tensor, places: Sequence[Tensor], inverse: Tensor, gap: Tensor) -> Tensor:
    """(I + du/dx)⁻¹ gap, with the derivative of the linear interpolant at x + inverse(x); gap itself if singular."""
    points = [index + v for index, v in zip(places, inverse, strict=True)]
    slopes = torch.stack([interpolate_gradient(component, points)[1] for component in displacement])
    eye = torch.eye(3, dtype=torch.float64, device=gap.device)
    matrix = slopes.reshape(3, 3, -1).permute(2, 0, 1).double() + eye
    regular = torch.linalg.det(matrix).abs() >= SINGULAR
    matrix = torch.where(regular[:, None, None], matrix, eye)
    direction: Tensor = torch.linalg.solve(matrix, gap.reshape(3, -1).T.double())
    return direction.T.reshape(gap.shape).to(gap.dtype)


def _displaced(field: Tensor, displacement: Tensor, part: tuple[slice, ...] | None = None) -> Tensor:
    """field(x + displacement(x)), by linear interpolation; beyond the border the edge value holds.

    Args:
        part: the planes and rows of the field that the displacement is for; None for all.
    """
    indices = voxel_indices(field.shape[1:], displacement.device)
    if part is not None:
        (z, y, x), (planes, rows) = indices, part
        indices = [z[planes], y[:, rows], x]
    return _moved(field, indices, displacement)


def _moved(field: Tensor, places: Sequence[Tensor], displacement: Tensor) -> Tensor:
    """field(x + displacement(x)) at some places x."""
    return interpolate(field, [index + u for index, u in zip(places, displacement, strict=True)])


def parts_of(shape: Sequence[int]) -> list[tuple[slice, slice]]:
    """Planes of a volume (D, H, W), or rows of a single plane: what is computed of a part takes little room."""
    depth, height, width = shape
    length, across = (depth, height * width) if depth > 1 else (height, width)
    size = max(1, PART // across)
    cuts = [slice(first, min(first + size, length)) for first in range(0, length, size)]
    return [(cut, slice(None)) if depth > 1 else (slice(None), cut) for cut in cuts]

"""Local normalised cross-correlation (LNCC): 1 - cc in a window around every voxel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from warpfactor.kernels.held import two
from warpfactor.kernels.ops import Slab
from warpfactor.kernels.reference.match import Match, fixed_slope, match, total
from warpfactor.kernels.reference.smooth import window_sum


def lncc_plans(
    fixed: Tensor, mask: Tensor | None, *, radius: Sequence[int], window: str, exact: bool, floors: Sequence[float]
) -> tuple[object, ...]:
    """One plan per channel: what a backend prepares once per level to make the calls of `lncc` faster, here None.

    A plan never changes the result beyond rounding. Plans of one call share memory: use them one after the other.

    Args:
        fixed: (C, D, H, W).
        mask: (D, H, W), 0 where a voxel does not count; None counts all.
        radius, window: As in the calls of `lncc` for which the plan is made.
        exact: As in these calls; with another value they are slower, not wrong.
        floors: Per channel, `flat[0]` of these calls: the variance that a window of the fixed image must exceed.
    """
    return (None,) * len(fixed)


def lncc_slabs(
    fixed: Tensor,
    mask: Tensor | None,
    *,
    slabs: Sequence[Slab],
    radius: Sequence[int],
    window: str,
    exact: bool,
    floors: Sequence[float],
) -> tuple[tuple[object, ...], ...]:
    """For every slab one plan per channel: the slab, whose core is summed over."""
    return tuple((slab,) * len(fixed) for slab in slabs)


@two
def lncc(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    radius: Sequence[int],
    window: Literal["box", "gaussian"] = "box",
    squared: bool = True,
    exact: bool = True,
    symmetric: bool = False,
    flat: tuple[float, float],
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    plan: object | None = None,
) -> Tensor:
    """Sum of 1 - cc over the voxels V, and |V|; V contains the voxels that count whose fixed window has contrast.

    cc = c² / (vF vM) or, signed, c / sqrt(vF vM), from the variances vF, vM and the covariance c of the voxels of the
    window that count; cc = 0 where the moving window has no contrast.

    Args:
        fixed: (D, H, W), F.
        moving: (D, H, W), M.
        displacement: (3, *fixed shape), u.
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index p.
        radius: Of the window, along z, y, x; at the border only the voxels that exist are used.
        window: "box" gives all voxels the same weight, "gaussian" has standard deviation (2 radius + 1) / 6.
        squared: Squared correlation, for which contrast may be inverted, or signed correlation.
        exact: Whether the gradient takes all windows that contain a voxel into account, or only the one centred on it.
        symmetric: Replace dM/du by (dM/du + rho dF/dx) / 2 in the gradient, with rho = sign(c) sqrt(vM / vF).
        flat: Variances of the fixed and of the moving image at or below which a window has no contrast.
        gradient: (3, *fixed shape), overwritten with d total / du; None computes the value only.
        fixed_mask, moving_mask: uint8, each on its own grid; a voxel counts where both masks are not 0 and p is inside.
        plan: From `lncc_plans` for the same fixed image, mask, window and flat[0]; None prepares anew in every call.
            With one from `lncc_slabs` the sums are over the core of its slab.
    """
    pair = match(fixed, moving, displacement, matrix, fixed_mask, moving_mask, gradient is not None)
    taps = [_taps(r, window) for r in radius]
    s = _statistics(pair, taps, flat)
    scale = s.var_f * s.var_m if squared else (s.var_f * s.var_m).sqrt()
    scale = torch.where(s.contrast, scale, 1.0)
    cc = torch.where(s.contrast, (s.cov * s.cov if squared else s.cov) / scale, 0.0)
    if gradient is not None and pair.slope is not None:
        slope = _symmetric_slope(pair.slope, fixed, s) if symmetric else pair.slope
        force = _force(pair, s, scale, squared, taps if exact else None)
        gradient.copy_(torch.where(pair.weight, force * slope, 0.0))
    core = plan.inner if isinstance(plan, Slab) else slice(None)
    return torch.stack([total(torch.where(s.valid, 1 - cc, 0.0)[core]), total(s.valid[core])])


@dataclass(frozen=True)
class _Statistics:
    """Per window: number of voxels n, means, variances, covariance; whether it is in V, and whether it has contrast."""

    n: Tensor
    mean_f: Tensor
    mean_m: Tensor
    var_f: Tensor
    var_m: Tensor
    cov: Tensor
    valid: Tensor
    contrast: Tensor


def _taps(radius: int, window: str) -> list[float]:
    if window == "box" or radius == 0:
        return [1.0] * (2 * radius + 1)
    s = (2 * radius + 1) / 6
    return [math.exp(-(k * k) / (2 * s * s)) for k in range(-radius, radius + 1)]


def _statistics(pair: Match, taps: Sequence[Sequence[float]], flat: tuple[float, float]) -> _Statistics:
    f, m = pair.fixed, pair.warped
    n, *sums = window_sum(torch.stack([pair.weight.to(f.dtype), f, m, f * f, m * m, f * m]), taps)
    # A window in which no voxel counts has zero sums; its centre is not in V.
    n = torch.where(n > 0, n, 1.0)
    mean_f, mean_m, ff, mm, fm = (window / n for window in sums)
    var_f, var_m, cov = ff - mean_f * mean_f, mm - mean_m * mean_m, fm - mean_f * mean_m
    valid = pair.weight & (var_f > flat[0])
    return _Statistics(n, mean_f, mean_m, var_f, var_m, cov, valid, valid & (var_m > flat[1]))


def _force(pair: Match, s: _Statistics, scale: Tensor, squared: bool, taps: Sequence[Sequence[float]] | None) -> Tensor:
    """d total / dM(y) = - sum over windows x of (k_xy / n_x) [a_x (F(y) - mF_x) - b_x (M(y) - mM_x)].

    k_xy is the weight of y in the window around x. The bracket is linear in F(y) and M(y), so that the sum follows from
    window sums of three maps. Without taps only the window x = y is taken, with k = 1.
    """
    a = (2 * s.cov if squared else torch.ones_like(s.cov)) / scale / s.n
    a = torch.where(s.contrast, a, 0.0)
    b = torch.where(s.contrast, a * s.cov / s.var_m, 0.0)
    maps = torch.stack([a, b, a * s.mean_f - b * s.mean_m])
    a, b, constant = (maps if taps is None else window_sum(maps, taps)).unbind()
    return -(a * pair.fixed - b * pair.warped - constant)


def _symmetric_slope(slope: Tensor, fixed: Tensor, s: _Statistics) -> Tensor:
    """(dM/du + rho dF/dx) / 2 where the window has contrast, dM/du elsewhere."""
    ratio = torch.where(s.contrast, s.var_m / s.var_f, 0.0)
    rho = s.cov.sign() * ratio.sqrt()
    return torch.where(s.contrast, (slope + rho * fixed_slope(fixed)) / 2, slope)

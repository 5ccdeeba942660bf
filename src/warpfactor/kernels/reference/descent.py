"""From gradient g to step v at every voxel, in place: the factored Levenberg-Marquardt forms and Adam.

Every function takes `weights`, one factor per axis for the unit of length: it computes a step v̂ from ĝ = weights * g
and writes v = weights * v̂, so that Σ g·v = Σ ĝ·v̂. With weights proportional to 1 / spacing, the step is isotropic in
millimetres. Every function that makes a step returns the largest |v̂| and -Σ ĝ·v̂, the decrease of the total that the
linear model predicts for the full step.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from warpfactor.kernels.held import held, three, two
from warpfactor.kernels.numbers import larger
from warpfactor.kernels.reference.interpolate import exact_type, working_type
from warpfactor.kernels.reference.match import total
from warpfactor.kernels.reference.smooth import Boundary, correlate, smooth_gaussian

FLOOR = 1e-5  # least λ of `tile`, in units of the trace: window sums in float32 have no more digits than that
TINY = 1e-30  # least λ of `tile` where there is no gradient at all


@three
def norms(gradient: Tensor, weights: Sequence[float]) -> Tensor:
    """Σ |ĝ|², Σ |ĝ| and the number of voxels with a gradient."""
    squares = _weighted(gradient, weights).square().sum(0)
    return torch.stack([total(squares), total(squares.sqrt()), total(squares > 0)])


@two
def descend(gradient: Tensor, *, form: str, damping: float, weights: Sequence[float], residual: float = 1.0) -> Tensor:
    """Replace the gradient by a step that depends on the gradient at the same voxel only.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        form: "pointwise" is -r g / (|g|² + λ) (paper eq. 5), which is -(g gᵀ + λI)⁻¹ r g by the Sherman-Morrison
            formula; "root" is -r g / (|g| + √λ), the same with the square root of g gᵀ; "plain" is -r g.
        damping: λ.
        weights: See the module.
        residual: r, the global residual of the paper's section 2.2.
    """
    g = _weighted(gradient, weights)
    squares = g.square().sum(0)
    if form == "pointwise":
        scale = residual * (squares + damping).reciprocal()
    elif form == "root":
        scale = residual * (squares.sqrt() + damping**0.5).reciprocal()
    elif form == "plain":
        scale = residual * torch.ones_like(squares)
    else:
        raise ValueError(f"unknown form {form!r}; use 'pointwise', 'root' or 'plain'")
    return _finish(gradient, g, -torch.where(squares > 0, scale, 0.0) * g, weights)


@two
def smooth_descend(
    gradient: Tensor,
    sigma: Sequence[float],
    *,
    boundary: Boundary,
    truncate: float,
    tail: tuple[float, float],
    form: str,
    damping: float,
    weights: Sequence[float],
    residual: float = 1.0,
) -> Tensor:
    """`smooth_gaussian` of the gradient, then `descend`."""
    smooth_gaussian(gradient, sigma, boundary=boundary, truncate=truncate, tail=tail)
    return held(descend)(gradient, form=form, damping=damping, weights=weights, residual=residual)


@two
def tile(
    gradient: Tensor,
    *,
    size: Sequence[int],
    damping: float,
    weights: Sequence[float],
    residual: float = 1.0,
) -> Tensor:
    """Replace the gradient by the step -(H + λI)⁻¹ r g; H is the mean of g gᵀ over a window (paper eq. 6).

    λ is at least 1e-5 of the trace of H; with less the solution would amplify rounding errors.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        size: Edges k of the window along z, y, x. It contains the voxels i - k // 2 to i + (k - 1) // 2, so a window of
            even size reaches one voxel further back than ahead. At the border the mean is over the voxels that exist.
        damping: λ.
        weights: See the module.
        residual: r, the global residual of the paper's section 2.2.
    """
    g = _weighted(gradient, weights)
    outer = torch.stack([g[i] * g[j] for i in range(3) for j in range(3)])
    blocks = _pooled(outer, size).reshape(3, 3, -1).permute(2, 0, 1)
    trace = blocks.diagonal(dim1=1, dim2=2).sum(1)
    lam = (FLOOR * trace).clamp(min=larger(damping, TINY))
    blocks = blocks.double() + lam.double()[:, None, None] * torch.eye(3, dtype=torch.float64, device=g.device)
    step = -residual * torch.linalg.solve(blocks, g.reshape(3, -1).T.double()).to(g.dtype)
    return _finish(gradient, g, step.T.reshape(g.shape), weights)


@two
def adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    number: int | Tensor,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> Tensor:
    """Replace the gradient by Adam's step -m / (√s + ε), with bias correction, and update the moments m and s.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        first, second: (3, D, H, W), the moments m and s of ĝ.
        number: Number of this step, from 1; if it is a tensor without axes and 0, the moments stay.
        betas: Decay rates of the two moments.
        epsilon: ε.
        weights: See the module.
    """
    g = _weighted(gradient, weights)
    _decay(first, g, betas[0], number)
    _decay(second, g.square(), betas[1], number)
    steps: Any = larger(cast(float, number), 1)
    mean = first / (1 - betas[0] ** steps)
    spread = second / (1 - betas[1] ** steps)
    return _finish(gradient, g, -mean / (spread.sqrt() + epsilon), weights)


@two
def smooth_adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    sigma: Sequence[float],
    *,
    boundary: Boundary,
    truncate: float,
    tail: tuple[float, float],
    number: int | Tensor,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> Tensor:
    """`smooth_gaussian` of the gradient, then `adam`."""
    smooth_gaussian(gradient, sigma, boundary=boundary, truncate=truncate, tail=tail)
    return held(adam)(gradient, first, second, number=number, betas=betas, epsilon=epsilon, weights=weights)


def _decay(moment: Tensor, values: Tensor, beta: float, number: int | Tensor) -> None:
    """Let a moment go towards these values, unless the number, if it is the device's, is 0."""
    if isinstance(number, Tensor):
        moment.copy_(torch.where(number > 0, moment.mul(beta).add_(values, alpha=1 - beta), moment))
    else:
        moment.mul_(beta).add_(values, alpha=1 - beta)


def _pooled(field: Tensor, size: Sequence[int]) -> Tensor:
    """Mean of (C, D, H, W) over the window of `tile`."""
    for axis, k in enumerate(size):
        taps = [1.0] * k + [0.0] * (1 - k % 2)
        line = field.new_ones([n if dim == axis + 1 else 1 for dim, n in enumerate(field.shape)])
        field = correlate(field, taps, axis, "zero") / correlate(line, taps, axis, "zero")
    return field


def _weighted(field: Tensor, weights: Sequence[float]) -> Tensor:
    dtype = working_type(field)
    return field.to(dtype) * torch.tensor(weights, dtype=dtype, device=field.device).reshape(3, 1, 1, 1)


def _finish(gradient: Tensor, g: Tensor, step: Tensor, weights: Sequence[float]) -> Tensor:
    """Write the step v to the gradient; returns the largest |v̂| and -Σ ĝ·v̂."""
    gradient.copy_(_weighted(step, weights))
    largest = step.square().sum(0).max().to(exact_type(step.device)).sqrt()
    return torch.stack([largest, -total((g * step).sum(0))])

"""From gradient to step, voxel by voxel and in place: the factored Levenberg-Marquardt forms and Adam.

Every function takes `weights`, one number per axis that says what a unit of length is along it: the descent works on
ĝ = weights * g and its step v̂ comes back as v = weights * v̂, so that Σ g·v = Σ ĝ·v̂. With weights proportional to
1 / spacing the descent is the same in every direction in millimetres. Each returns the largest |v̂| and -Σ ĝ·v̂,
the decrease of the total that the linear model predicts for the full step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import exact_type, working_type
from warpfactor.kernels.reference.match import total
from warpfactor.kernels.reference.smooth import correlate

FLOOR = 1e-5  # of λ in `tile`, in units of the trace: window sums in float32 carry no more digits than that
TINY = 1e-30  # of λ in `tile`, where there is no gradient at all


@torch.no_grad()
def norms(gradient: Tensor, weights: Sequence[float]) -> tuple[float, float, float]:
    """Σ |ĝ|², Σ |ĝ| and the number of voxels that have a gradient."""
    squares = _weighted(gradient, weights).square().sum(0)
    return total(squares), total(squares.sqrt()), total(squares > 0)


@torch.no_grad()
def descend(
    gradient: Tensor, *, form: str, damping: float, weights: Sequence[float], residual: float = 1.0
) -> tuple[float, float]:
    """Gradient -> step, in place.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        form: "pointwise" -r g / (|g|² + λ), paper eq. 5: (g gᵀ + λI)⁻¹ r g is a division by Sherman-Morrison;
            "root" -r g / (|g| + √λ), the same with the square root of the rank-one block; "plain" -r g.
        damping: λ.
        weights: see the module.
        residual: r, the global residual of the paper's section 2.2.
    """
    g = _weighted(gradient, weights)
    squares = g.square().sum(0)
    if form == "pointwise":
        scale = residual / (squares + damping)
    elif form == "root":
        scale = residual / (squares.sqrt() + damping**0.5)
    elif form == "plain":
        scale = torch.full_like(squares, residual)
    else:
        raise ValueError(f"unknown form {form!r}; use 'pointwise', 'root' or 'plain'")
    return _finish(gradient, g, -torch.where(squares > 0, scale, 0.0) * g, weights)


@torch.no_grad()
def tile(
    gradient: Tensor,
    *,
    size: Sequence[int],
    damping: float,
    weights: Sequence[float],
    residual: float = 1.0,
) -> tuple[float, float]:
    """Gradient -> step -(H + λI)⁻¹ r g, in place; H is the mean of g gᵀ over a window (paper eq. 6).

    λ is never below a hundred-thousandth of H's trace, where the solve would amplify rounding.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        size: edges k of the window along z, y, x: the voxels i - k // 2 to i + (k - 1) // 2, so an even one reaches one
            voxel further back than ahead. It is cut at the border and divided by the voxels it has left.
        damping: λ.
        weights: see the module.
        residual: r, the global residual of the paper's section 2.2.
    """
    g = _weighted(gradient, weights)
    outer = torch.stack([g[i] * g[j] for i in range(3) for j in range(3)])
    blocks = _pooled(outer, size).reshape(3, 3, -1).permute(2, 0, 1)
    trace = blocks.diagonal(dim1=1, dim2=2).sum(1)
    lam = (FLOOR * trace).clamp(min=max(damping, TINY))
    blocks = blocks.double() + lam.double()[:, None, None] * torch.eye(3, dtype=torch.float64, device=g.device)
    step = -residual * torch.linalg.solve(blocks, g.reshape(3, -1).T.double()).to(g.dtype)
    return _finish(gradient, g, step.T.reshape(g.shape), weights)


@torch.no_grad()
def adam(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    number: int,
    betas: tuple[float, float],
    epsilon: float,
    weights: Sequence[float],
) -> tuple[float, float]:
    """Gradient -> step -m / (√s + ε), in place; the moments m and s are updated, with Adam's bias correction.

    Args:
        gradient: (3, D, H, W), overwritten with the step.
        first, second: (3, D, H, W), the moments m and s of ĝ.
        number: of this step, from 1.
        betas: decay of the two moments.
        epsilon: added to the root of the second moment.
        weights: see the module.
    """
    g = _weighted(gradient, weights)
    first.mul_(betas[0]).add_(g, alpha=1 - betas[0])
    second.mul_(betas[1]).add_(g.square(), alpha=1 - betas[1])
    mean = first / (1 - betas[0] ** number)
    spread = second / (1 - betas[1] ** number)
    return _finish(gradient, g, -mean / (spread.sqrt() + epsilon), weights)


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


def _finish(gradient: Tensor, g: Tensor, step: Tensor, weights: Sequence[float]) -> tuple[float, float]:
    """Write the step into the gradient's buffer; largest |v̂| and -Σ ĝ·v̂."""
    gradient.copy_(_weighted(step, weights))
    largest = step.square().sum(0).max().to(exact_type(step.device)).sqrt()
    return float(largest), -total((g * step).sum(0))

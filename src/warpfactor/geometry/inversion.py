"""The inverse of a displacement at every voxel, also at those for which a search from the usual start gets stuck.

Where a warp is steep, a voxel can end at a place from which no step comes nearer. Its neighbours are often found, and
the inverse of a neighbour is a better start.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops
from warpfactor.kernels.reference.field import solve_inverse

FEW = 0.01  # share of voxels; if more are stuck, the warp folds, and neighbours do not help
MOST = 1 << 17  # voxels; about a kilobyte each
PASSES = 4  # one or two are needed
_AROUND = torch.tensor([offset for offset in itertools.product((-1, 0, 1), repeat=3) if any(offset)])


def invert_everywhere(
    displacement: Tensor, ops: Ops, *, start: Tensor | None = None, iterations: int = 50, tolerance: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """The inverse v and its residual |v(x) + u(x + v(x))| (D, H, W) in voxels; see Ops.invert."""
    inverse, residual = ops.invert(displacement, start=start, iterations=iterations, tolerance=tolerance)
    for _ in range(PASSES):
        stuck = (residual > tolerance).nonzero()
        if not 0 < len(stuck) <= min(FEW * residual.numel(), MOST):
            break
        at = tuple(stuck.T)
        old, left = inverse[(slice(None), *at)], residual[at]
        _fill(inverse, residual > tolerance, stuck)
        places = [axis.to(displacement.dtype) for axis in at]
        begin = inverse[(slice(None), *at)]
        found, now = solve_inverse(displacement, places, begin, iterations=iterations, tolerance=tolerance)
        inverse[(slice(None), *at)] = torch.where(now < left, found, old)
        residual[at] = torch.minimum(now, left)
        if not bool((now < left).any()):
            break
    return inverse, residual


def _fill(inverse: Tensor, unknown: Tensor, stuck: Tensor) -> None:
    """Overwrite the inverse at voxels (N, 3) with the mean of their known neighbours, ring by ring inwards."""
    last = torch.tensor(unknown.shape, device=stuck.device) - 1
    around = _AROUND.to(stuck.device)
    while len(stuck):
        near = tuple((stuck[:, None] + around).clamp_(min=0).minimum(last).permute(2, 0, 1))
        known = ~unknown[near]
        count = known.sum(1)
        reached = count > 0
        if not bool(reached.any()):
            return
        mean = (inverse[(slice(None), *near)] * known).sum(-1)[:, reached] / count[reached]
        at = tuple(stuck[reached].T)
        inverse[(slice(None), *at)] = mean
        unknown[at] = False
        stuck = stuck[~reached]

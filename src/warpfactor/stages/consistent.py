"""A warp and an inverse that undo each other between voxels too.

An inverse that is exact at its voxels is not so between them, where both fields are interpolated: its error is that of
linear interpolation, always to the same side. Half of it, moved to the voxels, leaves half of it between them, and in
the few places where even that is much, the warp bends more within a voxel than its grid can show and is smoothed there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops

MOST = 0.47  # voxels: the largest error that is left
MENDED = 0.35  # voxels: if there is a larger one, the warp is smoothed wherever the error is above this
PASSES = 4  # none to four are needed
TOLERANCE = 5e-3  # voxels: error of the inverse at its voxels before it is divided
AROUND = 1.2  # SD in voxels of the neighbourhood that is smoothed with such a voxel
SIGMA = 1.0  # SD in voxels of that smoothing
_UNIT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def consistent(forward: Tensor, inverse: Tensor, ops: Ops) -> Tensor:
    """The inverse of a displacement (3, D, H, W), which is smoothed in place where the two do not undo each other.

    Args:
        inverse: as the displacement has it between its voxels, too; it is the result if that is good enough.
    """
    for _ in range(PASSES):
        error = _disagreement(forward, inverse, ops)
        if float(error.max()) <= MOST:
            break
        _smooth_at(forward, error > MENDED, ops)
        inverse = balanced_inverse(forward, ops, start=inverse)
    return inverse


def balanced_inverse(forward: Tensor, ops: Ops, *, start: Tensor | None = None) -> Tensor:
    """The inverse v of u, with half the error of "u, then v" taken off where it arose."""
    inverse, _ = ops.invert(forward, start=start, tolerance=TOLERANCE)
    error = ops.compose(inverse, forward)
    return inverse.sub_(_at(error, inverse, ops), alpha=0.5)


def _disagreement(forward: Tensor, inverse: Tensor, ops: Ops) -> Tensor:
    """(D, H, W): the larger error of both orders, in voxels, at the places from which the warp leads there."""
    there, stays = ops.round_trip(forward, inverse, _UNIT)
    back, remains = ops.round_trip(inverse, forward, _UNIT)
    return torch.maximum(there * stays, _at((back * remains)[None], forward, ops)[0])


def _at(values: Tensor, displacement: Tensor, ops: Ops) -> Tensor:
    """(C, D, H, W): values where a displacement leads; zero outside."""
    still = torch.eye(3, 4, dtype=torch.float64)
    return torch.stack([ops.sample(channel.contiguous(), displacement, still) for channel in values])


def _smooth_at(field: Tensor, places: Tensor, ops: Ops) -> None:
    """Blend a field towards its Gaussian mean around some places, in place."""
    axes = [float(n > 1) for n in places.shape]
    share = ops.smooth_gaussian(places[None].to(field.dtype), [AROUND * axis for axis in axes])
    share.mul_((math.sqrt(2 * math.pi) * AROUND) ** sum(axes)).clamp_(max=1.0)  # one at a place by itself
    mean = ops.smooth_gaussian(field.clone(), [SIGMA * axis for axis in axes])
    field.lerp_(mean, share)

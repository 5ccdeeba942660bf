"""A warp and an inverse that undo each other between voxels too.

Between voxels both fields are interpolated, which is off by up to an eighth of their second differences. No choice of
values at the voxels mends that in both orders at once; a field that bends less within a voxel does. So where the two do
not undo each other, the warp bends more than its grid can show, and is smoothed there.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.inversion import invert_everywhere
from warpfactor.kernels.ops import Ops
from warpfactor.scene.middle import Middle

MEAN = 0.02  # voxels: the largest mean error, in either order, that is left in the halves
AIM = 0.019  # voxels: the same on the middle grid, which is not quite that of the fixed image
BENT = 0.03  # voxels: if the mean is larger, both halves are smoothed wherever the error is above this
BENT_SIGMA = 0.6  # SD in voxels of that smoothing
BENT_PASSES = 12  # about five are needed
MOST = 0.47  # voxels: the largest error that is left
MENDED = 0.35  # voxels: if there is a larger one, the warp is smoothed wherever the error is above this
SIGMA = 1.0  # SD in voxels of that smoothing
PASSES = 20  # none to five are needed
TOLERANCE = 5e-3  # voxels: error of the inverse at its voxels before it is divided
AROUND = 1.2  # SD in voxels of the neighbourhood that is smoothed with such a voxel
_UNIT = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def undo_each_other(forward: Tensor, inverse: Tensor, ops: Ops) -> bool:
    """Whether two displacements do so in the mean."""
    return max(_mean_error(forward, inverse, ops), _mean_error(inverse, forward, ops)) <= MEAN


def settle(middle: Middle, halves: tuple[Tensor, Tensor], ops: Ops) -> None:
    """Smooth the displacements of the middle to both images alike, in place, until the two ways undo each other.

    What happens depends on the middle alone, so exchanged images have exchanged halves after it as before.
    """
    to_fixed, to_moving = halves
    still = Middle(middle.grid, np.eye(4), np.eye(4))
    for _ in range(BENT_PASSES):
        there = still.whole_way(middle.grid, to_fixed, to_moving, ops)
        back = still.whole_way(middle.grid, to_moving, to_fixed, ops)
        if max(_mean_error(there, back, ops), _mean_error(back, there, ops)) <= AIM:
            break
        errors = _error(there, back, ops), _error(back, there, ops)
        at_middle = [_at(error[None], half, ops)[0] for error, half in zip(errors, halves, strict=True)]
        places = torch.maximum(*at_middle) > BENT
        for half in halves:
            _smooth_at(half, places, BENT_SIGMA, ops)


def consistent(forward: Tensor, inverse: Tensor, ops: Ops) -> Tensor:
    """The inverse of a displacement (3, D, H, W), which is smoothed in place where the two are far from undoing it.

    Args:
        inverse: as found with the displacement; it is the result if no voxel needs smoothing.
    """
    for _ in range(PASSES):
        there, back = _error(forward, inverse, ops), _error(inverse, forward, ops)
        if max(float(there.max()), float(back.max())) <= MOST:
            break
        # One by one, as errors interpolated where the warp leads would lose single voxels between those.
        places = _led(back > MENDED, inverse).logical_or_(there > MENDED)
        _smooth_at(forward, places, SIGMA, ops)
        inverse = balanced_inverse(forward, ops, start=inverse)
    return inverse


def balanced_inverse(forward: Tensor, ops: Ops, *, start: Tensor | None = None) -> Tensor:
    """The inverse v of u, with half the error of "u, then v" taken off where it arose."""
    inverse, _ = invert_everywhere(forward, ops, start=start, tolerance=TOLERANCE)
    error = ops.compose(inverse, forward)
    return inverse.sub_(_at(error, inverse, ops), alpha=0.5)


def _mean_error(first: Tensor, second: Tensor, ops: Ops) -> float:
    """Mean length of what "first, then second" leaves, in voxels, over the voxels that stay in the grid."""
    error, stays = ops.round_trip(first, second, _UNIT)
    inside = stays > 0
    return float(error[inside].double().mean()) if bool(inside.any()) else 0.0


def _error(first: Tensor, second: Tensor, ops: Ops) -> Tensor:
    """(D, H, W): that length; zero where voxels leave the grid."""
    error, stays = ops.round_trip(first, second, _UNIT)
    return error * stays


def _led(places: Tensor, displacement: Tensor) -> Tensor:
    """(D, H, W) bool: the voxels nearest to where a displacement leads from some places."""
    found = torch.zeros_like(places)
    ends = places.nonzero() + displacement[:, places].T
    last = torch.tensor(places.shape, device=places.device) - 1
    found[tuple(ends.round().long().clamp_(min=0).minimum(last).T)] = True
    return found


def _at(values: Tensor, displacement: Tensor, ops: Ops) -> Tensor:
    """(C, D, H, W): values where a displacement leads; zero outside."""
    still = torch.eye(3, 4, dtype=torch.float64)
    return torch.stack([ops.sample(channel.contiguous(), displacement, still) for channel in values])


def _smooth_at(field: Tensor, places: Tensor, sigma: float, ops: Ops) -> None:
    """Blend a field towards its Gaussian mean around some places, in place."""
    axes = [float(n > 1) for n in places.shape]
    share = ops.smooth_gaussian(places[None].to(field.dtype), [AROUND * axis for axis in axes])
    share.mul_((math.sqrt(2 * math.pi) * AROUND) ** sum(axes)).clamp_(max=1.0)  # one at a place by itself
    mean = ops.smooth_gaussian(field.clone(), [sigma * axis for axis in axes])
    field.lerp_(mean, share)

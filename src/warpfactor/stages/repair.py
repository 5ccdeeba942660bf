"""Folds between neighbouring voxels taken out of a warp, where they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from warpfactor.kernels.ops import Ops

LEAST = 0.05  # one-sided determinants below this are mended
INNER = 3  # voxels around such a voxel within which others are mended with it
REACH = 8  # voxels around it that are looked at
DILATE = 2  # voxels around each that are smoothed
EDGE = 0.7  # SD in voxels of the border between what is smoothed and what is not
PASSES = 30  # three to five are needed
ROUNDS = 4  # over the whole field: what was smoothed can leave a fold at its border


def repair(displacement: Tensor, ops: Ops) -> int:
    """Blend a displacement (3, D, H, W) in voxels towards its Gaussian mean around folds, in place; folds that were.

    A fold is a voxel of which a one-sided Jacobian determinant is below LEAST. Only boxes around folds are touched,
    unless there are so many that the boxes together are larger than the field: then the field is one box.
    """
    found = 0
    for _ in range(ROUNDS):
        folds = (_least(displacement, ops) < LEAST).nonzero().tolist()
        found = found or len(folds)
        if not folds:
            break
        _mend_all(displacement, folds, ops)
    return found


def _mend_all(displacement: Tensor, folds: list[list[int]], ops: Ops) -> None:
    """Mend a box around each fold, or the whole field."""
    if len(folds) * math.prod(min(n, 2 * REACH + 1) for n in displacement.shape[1:]) > displacement[0].numel():
        _mend_box(displacement, (slice(None),) * 3, ops)
        return
    for place in folds:
        sizes = tuple(zip(place, displacement.shape[1:], strict=True))
        box = tuple(slice(max(0, i - REACH), min(n, i + REACH + 1)) for i, n in sizes)
        inner = tuple(slice(max(0, min(i, REACH) - INNER), min(i, REACH) + INNER + 1) for i, _ in sizes)
        _mend_box(displacement[(slice(None), *box)], inner, ops)


def _mend_box(part: Tensor, inner: tuple[slice, ...], ops: Ops) -> None:
    """Passes over a box, in place, until no voxel of its inner part is a fold."""
    for _ in range(PASSES):
        bad = torch.zeros_like(part[0])
        bad[inner] = (_least(part.contiguous(), ops) < LEAST)[inner].to(part.dtype)
        if not bool(bad.any()):
            break
        _mend(part, bad, ops)


def _least(displacement: Tensor, ops: Ops) -> Tensor:
    """(D, H, W) the least one-sided determinant at every voxel."""
    return ops.distortion(displacement, (1.0, 1.0, 1.0))[1]


def _mend(part: Tensor, bad: Tensor, ops: Ops) -> None:
    """One pass over a box, in place, around the voxels where `bad` is one."""
    radius = [min(DILATE, n - 1) for n in bad.shape]
    share = torch.nn.functional.max_pool3d(bad[None, None], [2 * r + 1 for r in radius], stride=1, padding=radius)[0]
    ops.smooth_gaussian(share, (EDGE,) * 3)
    mean = ops.smooth_gaussian(part.clone(memory_format=torch.contiguous_format), (1.0,) * 3)
    part.lerp_(mean, share)

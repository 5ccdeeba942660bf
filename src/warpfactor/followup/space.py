"""The space of one person's scans: how its points get into each scan, and what a piece of it gains or loses there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.halfway import middle_grid, moved_grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.kernels.ops import Ops
from warpfactor.measure import LOG_JACOBIAN_RANGE
from warpfactor.registration.result import Registration
from warpfactor.scene.middle import Middle
from warpfactor.stages.found import Halves

SPACE = "space"  # what transforms call it


@dataclass(frozen=True)
class CommonSpace:
    """A space between scans.

    Attributes:
        grid: its voxels.
        to_scans: transforms of its points into every scan.
        log_changes: of every scan but the first, the logarithm of how much larger a piece is there than in the first.
    """

    grid: Grid
    to_scans: tuple[Transform, ...]
    log_changes: tuple[Image, ...]


def common_space(found: Sequence[Registration], ops: Ops) -> CommonSpace:
    """The space of registrations that all have the first scan as fixed image."""
    return _middle_of_two(found[0], ops) if len(found) == 1 else _mean_of_many(found, ops)


def _middle_of_two(found: Registration, ops: Ops) -> CommonSpace:
    """The middle of the two scans, where exchanging them changes the sign of the map and nothing else."""
    halves = halves_of(found)
    middle, names = halves.middle, ("scan 1", "scan 2")
    back = np.asarray(np.linalg.inv(middle.from_fixed), dtype=np.float64)
    sides = ((halves.to_fixed, back), (halves.to_moving, middle.to_moving))
    to_scans = tuple(
        Chain((Warp(warp.cpu(), middle.grid, SPACE, SPACE), Affine(matrix, SPACE, name, middle.grid.ndim)), SPACE, name)
        for (warp, matrix), name in zip(sides, names, strict=True)
    )
    first, second = (_log_volume(warp, ops) for warp, _ in sides)
    change = second.sub_(first) + _log_scale(found)
    return CommonSpace(middle.grid, to_scans, (Image(change[None].cpu(), middle.grid, "change"),))


def halves_of(found: Registration) -> Halves:
    """How both scans get to the middle; two zero warps if no warp was kept, since then nothing has changed."""
    if found.halves is not None:
        return found.halves
    warp = found.warp
    if warp is not None:
        raise InputError(
            f"The recipe {found.recipe.name!r} treats the two scans differently; choose one whose deformable.method "
            "is symmetric."
        )
    middle = Middle.of(found.fixed_grid, found.moving_grid, np.asarray(found.affine.matrix))
    still = torch.zeros((3, *middle.grid.shape))
    return Halves(middle, still, still)


def _mean_of_many(found: Sequence[Registration], ops: Ops) -> CommonSpace:
    """The mean position of all scans, and the mean shape: the first scan moved by the mean of all displacements."""
    first = found[0].fixed_grid
    matrices = [np.eye(4), *(np.asarray(each.affine.matrix) for each in found)]
    pose = mean_pose(matrices, first)
    grid = middle_grid(moved_grid(first, pose), moved_grid(found[0].moving_grid, pose @ np.linalg.inv(matrices[1])))
    mean = torch.zeros((3, *first.shape))
    for each in found:
        if each.warp is not None:
            mean += each.warp.displacement / (len(found) + 1)
    back = Warp(ops.invert(mean)[0], first, "scan 1", "scan 1")
    away = Affine(np.linalg.inv(pose), SPACE, "scan 1", first.ndim)
    to_first = Chain((away, back), SPACE, "scan 1")
    to_scans: list[Transform] = [to_first]
    changes = []
    for number, each in enumerate(found, start=2):
        to_scans.append(Chain((*to_first.parts, *each.transform.parts), SPACE, f"scan {number}"))
        volume = torch.zeros(first.shape) if each.warp is None else _log_volume(each.warp.displacement, ops)
        change = Image((volume + _log_scale(each))[None], first, "change")
        changes.append(to_first.resample(change, grid, ops=ops))
    return CommonSpace(grid, tuple(to_scans), tuple(changes))


def mean_pose(matrices: Sequence[Matrix], grid: Grid) -> Matrix:
    """4x4: the mean of rigid transforms, of their rotations and of where they put the centre of a grid."""
    u, _, vt = np.linalg.svd(np.sum([matrix[:3, :3] for matrix in matrices], axis=0))
    centre = grid.index_to_world((np.asarray(grid.shape) - 1) / 2)[0]
    pose = np.eye(4)
    pose[:3, :3] = u @ vt
    moved = np.mean([matrix[:3, :3] @ centre + matrix[:3, 3] for matrix in matrices], axis=0)
    pose[:3, 3] = moved - pose[:3, :3] @ centre
    return pose


def _log_volume(displacement: Tensor, ops: Ops) -> Tensor:
    """(D, H, W) logarithm of the Jacobian determinant."""
    return ops.jacobian_determinant(displacement.contiguous()).clamp_(*LOG_JACOBIAN_RANGE).log_()


def _log_scale(found: Registration) -> float:
    """What the linear part changes in volume: nothing if it is rigid."""
    return float(np.log(abs(np.linalg.det(np.asarray(found.affine.matrix)[:3, :3]))))

"""The multi-resolution loop of deformable registration: levels coarse to fine, the warp carried up between them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import new_field
from warpfactor.optim import Moments
from warpfactor.registration.resources import give_back_memory
from warpfactor.scene.scene import Scene, finest_spacing, level_scene, level_shape, stored
from warpfactor.scene.shading import without_shading
from warpfactor.stages.greedy import Course, LevelSolver, Outcome, Progress
from warpfactor.stages.history import Record, Status
from warpfactor.stages.settings import Deformable

REPEATED = "left out, as fine as the next level"


@dataclass(frozen=True)
class DeformableResult:
    """A warp and how it was found.

    Attributes:
        displacement: (3, D, H, W) in voxels of the fixed grid, x -> A(x + u(x)) being the whole map.
        status: why it stopped.
        records: one per iteration.
        outcomes: how each level ended, by factor, coarse to fine.
    """

    displacement: Tensor
    status: Status
    records: tuple[Record, ...]
    outcomes: tuple[tuple[float, str], ...]


def register_deformable(
    scene: Scene,
    settings: Deformable,
    *,
    ops: ModuleType,
    affine: ArrayLike | None = None,
    start: Tensor | None = None,
    progress: Progress | None = None,
    keep_interrupted: bool = False,
) -> DeformableResult:
    """The warp u that minimises the cost of M(A(x + u(x))) against F(x).

    Args:
        scene: the two images.
        settings: how.
        ops: the kernels of the images' device.
        affine: A, 4x4, LPS mm, fixed to moving world; None is the identity.
        start: (3, *fixed shape) displacement in voxels to start from; None starts at zero.
        progress: called after every iteration.
        keep_interrupted: let Ctrl-C end the run with the best warp so far.
    """
    scene = stored(scene, settings.storage)
    course = Course(time.perf_counter(), progress, keep_interrupted)
    outcomes: list[tuple[float, str]] = []
    given = _checked_start(scene, start)
    grid, warp, kept = scene.fixed_grid, given, given
    through = np.eye(4) if affine is None else np.asarray(affine, dtype=np.float64)
    ended = Outcome.LIMIT
    repeated = repeated_levels(scene, settings.levels)
    try:
        for index, (factor, iterations) in enumerate(zip(settings.levels, settings.iterations, strict=True)):
            if index in repeated:
                outcomes.append((factor, REPEATED))
                continue
            level = level_scene(scene, factor, ops, blur=settings.blur)
            lifted = _lift(warp, grid, level, ops)
            if given is not None and kept is not None:
                kept = _lift(kept, grid, level, ops)
                if index == len(settings.levels) - 1:  # give back what a warm start lost on the coarser grids
                    lifted += kept.neg_().add_(resample_field(given, scene.fixed_grid, level.fixed_grid, ops))
                    kept = None
            if settings.descent.name == "adam":
                course.moments = _carry_moments(course.moments, lifted, grid, level.fixed_grid, ops)
            warp, grid = lifted, level.fixed_grid  # what the coarser level left is not held any longer
            matrix = VoxelMap(grid, None, through).matrix(level.moving_grid)
            if settings.shading > 0 and settings.metric.name == "lncc" and factor > 1:
                level = without_shading(level, settings.shading, warp, matrix, ops, settings.channel_weights)
            solver = LevelSolver(level, matrix, settings, ops, index)
            give_back_memory()
            warp, ended = solver.run(warp, factor, iterations, course)
            outcomes.append((factor, ended.value))
            if ended is Outcome.INTERRUPTED:
                break
    except KeyboardInterrupt:  # between two levels
        if not keep_interrupted:
            raise
        ended = Outcome.INTERRUPTED
    found = new_field((3, *scene.pair.shape), device=scene.device).zero_() if warp is None else warp
    found = resample_field(found, grid, scene.fixed_grid, ops)
    give_back_memory()
    return DeformableResult(found, _status(ended, outcomes), tuple(course.records), tuple(outcomes))


def _lift(warp: Tensor | None, grid: Grid, level: Scene, ops: ModuleType) -> Tensor:
    """The warp on the next level's grid; zero where there is none yet."""
    if warp is None:
        return new_field((3, *level.pair.shape), device=level.device).zero_()
    lifted = resample_field(warp, grid, level.fixed_grid, ops)
    return lifted.clone() if lifted is warp else lifted


def repeated_levels(scene: Scene, levels: tuple[float, ...]) -> set[int]:
    """Numbers of the levels that small images cannot tell from the next finer one; these are left out."""
    finest = finest_spacing(scene.fixed_grid)
    shapes = [(level_shape(scene.fixed_grid, f * finest), level_shape(scene.moving_grid, f * finest)) for f in levels]
    return {i for i in range(len(levels) - 1) if shapes[i] == shapes[i + 1]}


def _checked_start(scene: Scene, start: Tensor | None) -> Tensor | None:
    if start is None:
        return None
    if tuple(start.shape) != (3, *scene.pair.shape):
        raise InputError(
            f"The initial displacement has shape {tuple(start.shape)}; the fixed image needs {(3, *scene.pair.shape)}."
        )
    if not bool(torch.isfinite(start).all()):
        raise InputError("The initial displacement has NaN or infinite values.")
    return start.to(device=scene.device, dtype=torch.float32).contiguous()


def resample_field(field: Tensor, source: Grid, target: Grid, ops: ModuleType) -> Tensor:
    """A displacement on one level's grid, linearly interpolated on another's and in its voxels."""
    if source == target:
        return field
    factors = np.asarray(source.shape) / np.asarray(target.shape)
    # Both grids span the same field of view: index + 1/2 is a fixed share of the length.
    resized: Tensor = ops.resize(field, target.shape, factors.tolist(), ((factors - 1) / 2).tolist())
    for axis in range(3):
        resized[axis] /= float(factors[axis])
    return resized


def _carry_moments(moments: Moments | None, warp: Tensor, source: Grid, target: Grid, ops: ModuleType) -> Moments:
    """Adam's moments on the next level's grid; they are carried as plain fields, as the paper's host does."""
    if moments is None:
        return Moments.zeros_like(warp)
    factors = np.asarray(source.shape) / np.asarray(target.shape)
    arguments = (target.shape, factors.tolist(), ((factors - 1) / 2).tolist())
    return Moments(ops.resize(moments.first, *arguments), ops.resize(moments.second, *arguments), moments.number)


def _status(ended: Outcome, outcomes: list[tuple[float, str]]) -> Status:
    if ended is Outcome.INTERRUPTED:
        return Status.INTERRUPTED
    if ended is Outcome.STALLED:
        return Status.STALLED
    if ended is Outcome.ROSE:
        return Status.ROSE
    flat = all(name in (Outcome.FLAT.value, Outcome.STALLED.value, REPEATED) for _, name in outcomes)
    return Status.CONVERGED if flat else Status.ITERATIONS

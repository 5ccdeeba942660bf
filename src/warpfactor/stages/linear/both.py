"""Linear stages that treat both images alike: found both ways round, and the mean of the two transforms taken.

A metric is a sum over the voxels of one image, and what starts are tried depends on which image is the fixed one. So
the transform that is found with the images exchanged is not quite the inverse of the first one. Half-way between them
lies one that does not depend on which image was called the fixed one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.halfway import mean_transform
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene
from warpfactor.stages.linear.motion import Motion
from warpfactor.stages.linear.stage import Levels, LinearSettings, run_linear
from warpfactor.stages.stage import Stage, Watch

SAME = 0.04  # of an image's largest extent: transforms that are closer than this at its corners are averaged


def run_linear_both_ways(
    scene: Scene,
    settings: LinearSettings,
    *,
    ops: Ops,
    start: ArrayLike | None = None,
    watch: Watch | None = None,
) -> tuple[Matrix, Stage]:
    """The mean of the transform and of the inverse of that of the exchanged images; see run_linear.

    If the two are apart, one of them has gone astray. Then that of them and of their mean is taken which makes the
    images most alike, seen from both.

    Returns:
        4x4 float64, LPS mm, fixed world to moving world; and the stage. Its costs are the means of both ways.
    """
    watch = watch or Watch()
    there, forward = run_linear(scene, settings, ops=ops, start=start, watch=watch)
    if forward.interrupted:
        return there, forward
    begin = None if start is None else np.linalg.inv(np.asarray(start, dtype=np.float64))
    swapped = scene.swapped()
    back, backward = run_linear(swapped, settings, ops=ops, start=begin, watch=watch)
    if backward.interrupted:
        return there, replace(forward, ending=backward.ending)
    other = _inverse(back, scene.fixed.grid)
    mean = _flat(mean_transform(there, other), scene.fixed.grid)
    if _apart(there, other, scene) > SAME:
        mean = _best((mean, there, other), scene, settings, ops)
    return mean, _joined(forward, backward, watch)


def _apart(first: Matrix, second: Matrix, scene: Scene) -> float:
    """How far two transforms put an image's corners from each other, as a share of the extent; the larger of both."""
    steps = np.linalg.solve(first, second), first @ np.linalg.inv(second)
    reaches = []
    for step, side in zip(steps, scene.sides, strict=True):
        extent = max(n * s for n, s in zip(side.grid.shape, side.grid.spacing_mm, strict=True))
        reaches.append(Motion.on(side.grid, "translation", extent).reach(np.asarray(step, dtype=np.float64)))
    return max(reaches)


def _best(candidates: tuple[Matrix, ...], scene: Scene, settings: LinearSettings, ops: Ops) -> Matrix:
    """The transform that makes the images most alike by local correlation, at the levels of either of them."""
    swapped = scene.swapped()
    judges = [Levels.of(each, settings.on(each.fixed.grid), ops).judge(ops) for each in (scene, swapped)]

    def cost(matrix: Matrix) -> float:
        return judges[0].cost(matrix) + judges[1].cost(_inverse(matrix, scene.fixed.grid))

    return min(candidates, key=cost)


def _joined(forward: Stage, backward: Stage, watch: Watch) -> Stage:
    """Both runs as one stage."""
    known = [each.evidence for each in (forward, backward) if each.evidence is not None]
    metrics = (forward.metric,) if forward.metric == backward.metric else (forward.metric, backward.metric)
    return replace(
        forward,
        metric=" and ".join(metrics),
        cost_before=(forward.cost_before + backward.cost_before) / 2,
        cost_after=(forward.cost_after + backward.cost_after) / 2,
        kept=forward.kept or backward.kept,
        seconds=watch.seconds,
        history=(*forward.history, *backward.history),
        evidence=min(known) if known else None,
    )


def _inverse(matrix: Matrix, grid: Grid) -> Matrix:
    return _flat(np.asarray(np.linalg.inv(matrix), dtype=np.float64), grid)


def _flat(matrix: Matrix, grid: Grid) -> Matrix:
    """The transform; in 2-D with z left alone to the last digit, as files need it."""
    if grid.ndim == 2:
        matrix[2], matrix[:2, 2] = (0, 0, 1, 0), 0
    matrix[3] = (0, 0, 0, 1)
    return matrix

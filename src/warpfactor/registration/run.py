"""`register`: two images in, a Registration out; runs the stages of a recipe one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Warp
from warpfactor.measure.regularity import measure
from warpfactor.recipebook.files import recipe as find_recipe
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.inputs import Initial, Inputs, Spacing, check_weights, load_initial, load_mask, load_pair
from warpfactor.registration.resources import (
    Clock,
    checked_device,
    give_back_memory,
    insist,
    limited_threads,
    peak_memory_mb,
    seeded,
    versions,
)
from warpfactor.registration.result import Registration, RunInfo
from warpfactor.registration.sources import sources_of
from warpfactor.scene.missing import Gap, Lookout, gap_shares, without_background, without_gaps
from warpfactor.scene.scene import Scene, make_scene, stored
from warpfactor.stages.linear.solve import INTERRUPTED
from warpfactor.stages.linear.starts import foreground
from warpfactor.stages.stage import Progress, Stage, run_deformable, run_linear


def register(  # noqa: PLR0913 - the one function that takes every choice; all but the images have defaults
    fixed: Any,
    moving: Any,
    *,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    fixed_mask: Any = None,
    moving_mask: Any = None,
    initial: Any = None,
    fixed_spacing_mm: Spacing = None,
    moving_spacing_mm: Spacing = None,
    channel_weights: Sequence[float] | None = None,
    outside: float = 0.0,
    device: str | torch.device = "cpu",
    backend: str = "auto",
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    keep_interrupted: bool = False,
) -> Registration:
    """Find the transform that carries a moving image onto a fixed one.

    Args:
        fixed, moving: each a path, an Image, an array, a SimpleITK, nibabel or ANTs image, or a list of those on one
            grid: channels that are registered together.
        recipe: a name of `recipes()`, a .toml or .json file, or a Recipe.
        overrides: settings to change in it, by dotted name; see Recipe.replace.
        fixed_mask, moving_mask: where the images count, on their own grids; anything that is not zero is inside.
        initial: a transform, 4x4 matrix (LPS mm, fixed to moving) or transform files to start from. Linear stages go on
            from its matrix; if it has a warp they are left out and the deformable stage goes on from that.
        fixed_spacing_mm, moving_spacing_mm: of arrays, along (z, y, x); 1 without.
        channel_weights: of the deformable stage's cost, one per channel; equal without.
        outside: value of the warped image where there is no moving image.
        device, backend: where and by which kernels; `warpfactor info` lists them.
        threads: at most so many; all without.
        seed: of random numbers; only losses of your own can draw any.
        progress: called with an Update after every iteration.
        keep_interrupted: let Ctrl-C end the run with the best result so far instead of an exception.
    """
    clock = Clock()
    chosen = _recipe(recipe, overrides, channel_weights)
    place = checked_device(device)
    ops = kernels.select(place, backend)
    inputs = _read(fixed, moving, fixed_mask, moving_mask, (fixed_spacing_mm, moving_spacing_mm), threads)
    chosen = chosen.for_images(planar=inputs.fixed.grid.shape[0] == 1)
    if chosen.deformable is not None:
        check_weights(chosen.deformable.channel_weights, inputs)
    start = load_initial(initial, inputs.fixed.grid)
    sources = sources_of(fixed=fixed, moving=moving, fixed_mask=fixed_mask, moving_mask=moving_mask)
    del fixed, moving, fixed_mask, moving_mask, initial  # nothing here holds an image longer than it is needed
    clock.lap("read")
    with limited_threads(threads) as used, seeded(seed):
        course = _Course(ops, place, clock, progress, keep_interrupted)
        scene = _prepare(inputs, chosen, course)
        source = _Source(inputs.moving, inputs.fixed.grid, (inputs.fixed.name, inputs.moving.name))
        del inputs
        found = _run_stages(scene, chosen, start, course)
        del scene, start
        info = (str(place), kernels.name_of(ops), used, seed)
        result, stopped = insist(lambda: _finish(source, found, course, info, outside), keep=keep_interrupted)
        result = replace(result, run=replace(result.run, sources=sources))
        return replace(result, interrupted=True, status=INTERRUPTED) if stopped else result


@dataclass(frozen=True)
class _Course:
    """What every part of a run needs besides its data."""

    ops: ModuleType
    device: torch.device
    clock: Clock
    progress: Progress | None
    keep_interrupted: bool


@dataclass(frozen=True)
class _Source:
    """What is needed of the images after the stages: the moving one, the fixed one's grid, both names."""

    moving: Image
    fixed_grid: Grid
    names: tuple[str, str]


class _Aligned(NamedTuple):
    """What the linear stages leave: the matrix, how they went, whether Ctrl-C ended them."""

    matrix: Matrix
    stages: list[Stage]
    interrupted: bool


@dataclass(frozen=True)
class _Found:
    """What the stages leave: y = matrix (x + displacement(x)), how they went, where the fixed image shows something.

    The recipe is the given one with what was chosen in it for this object.
    """

    recipe: Recipe
    matrix: Matrix
    displacement: Tensor | None
    stages: tuple[Stage, ...]
    interrupted: bool
    foreground: Tensor | None
    nonfinite: tuple[int, int]
    missing: tuple[float, float]


def _recipe(spec: str | Recipe, overrides: Mapping[str, Any] | None, channel_weights: Sequence[float] | None) -> Recipe:
    changes = dict(overrides or {})
    if channel_weights is not None:
        changes["deformable.channel_weights"] = tuple(channel_weights)
    return find_recipe(spec).replace(changes)


def _read(
    fixed: Any,
    moving: Any,
    fixed_mask: Any,
    moving_mask: Any,
    spacings_mm: tuple[Spacing, Spacing],
    threads: int | None,
) -> Inputs:
    fixed_image, moving_image = load_pair(fixed, moving, spacings_mm=spacings_mm, threads=threads)
    return Inputs(
        fixed_image,
        moving_image,
        load_mask(fixed_mask, fixed_image, name="fixed mask"),
        load_mask(moving_mask, moving_image, name="moving mask"),
    )


def _prepare(inputs: Inputs, recipe: Recipe, course: _Course) -> Scene:
    scene = make_scene(
        inputs.fixed,
        inputs.moving,
        fixed_mask=inputs.fixed_mask,
        moving_mask=inputs.moving_mask,
        device=course.device,
    )
    if recipe.deformable is not None:
        scene = stored(scene, recipe.deformable.storage)
    course.clock.lap("prepare")
    return scene


def _run_stages(scene: Scene, recipe: Recipe, start: Initial, course: _Course) -> _Found:
    linear = () if start.displacement is not None else recipe.linear
    aligned = _run_linear_stages(scene, linear, start.matrix, course)
    missing = (0.0, 0.0)
    if linear and not aligned.interrupted:  # where nothing was aligned, what lies apart is not missing
        aligned, gaps = _with_gaps(scene, linear, start.matrix, aligned, course)
        scene, stopped = insist(partial(without_gaps, scene, gaps), keep=course.keep_interrupted)
        aligned = aligned._replace(interrupted=aligned.interrupted or stopped)
        missing = gap_shares(gaps)
        del gaps
        course.clock.lap("missing parts")
    matrix, stages, interrupted = aligned
    displacement, where = start.displacement, None
    if displacement is not None or recipe.deformable is not None:
        where, stopped = insist(
            lambda: foreground(scene.pair.fixed, scene.pair.fixed_mask).cpu(), keep=course.keep_interrupted
        )
        interrupted = interrupted or stopped
        recipe = recipe.for_object(int(where.sum()))
    if recipe.deformable is not None and not interrupted:
        try:
            displacement, stage = run_deformable(
                scene,
                recipe.deformable,
                matrix,
                start.displacement,
                ops=course.ops,
                progress=course.progress,
                keep_interrupted=course.keep_interrupted,
            )
            stages.append(stage)
            interrupted = stage.interrupted
        except KeyboardInterrupt:  # before its first iteration: what it was to start from holds
            if not course.keep_interrupted:
                raise
            interrupted = True
        course.clock.lap("deformable")
    return _Found(recipe, matrix, displacement, tuple(stages), interrupted, where, scene.nonfinite, missing)


def _with_gaps(
    scene: Scene, settings: Sequence[Any], start: Matrix | None, first: _Aligned, course: _Course
) -> tuple[_Aligned, tuple[Gap, ...]]:
    """How the images lie on each other, and what is missing from them.

    A part that is missing may have misled the linear stages. If there is one, or one object is much the smaller, they
    run again without that image's background. What they find then holds if there is a gap, for a second time or at a
    lower cost.
    """
    lookout, keep = Lookout(scene), course.keep_interrupted
    gaps, stopped = insist(lambda: lookout.gaps(first.matrix), keep=keep)
    suspects, again = insist(lambda: tuple(gap.side for gap in gaps) or lookout.smaller(), keep=keep)
    if stopped or again or not suspects:
        return first._replace(interrupted=stopped or again), gaps
    try:
        second = _run_linear_stages(without_background(scene, suspects), settings, start, course)
        found = lookout.gaps(second.matrix)
    except InputError:  # too little is left to go by
        return first, gaps
    except KeyboardInterrupt:
        if not keep:
            raise
        return first._replace(interrupted=True), gaps
    if second.interrupted:  # it had not come as far as the first
        return first._replace(interrupted=True), gaps
    lower = second.stages[-1].cost_after < first.stages[-1].cost_after
    if found and (gaps or lower):
        return second, found
    return first, gaps


def _run_linear_stages(scene: Scene, settings: Sequence[Any], start: Matrix | None, course: _Course) -> _Aligned:
    """The best so far holds if Ctrl-C ends the stages."""
    matrix, stages = start, list[Stage]()
    for each in settings:
        try:
            matrix, stage = run_linear(
                scene,
                each,
                matrix,
                ops=course.ops,
                progress=course.progress,
                keep_interrupted=course.keep_interrupted,
            )
        except KeyboardInterrupt:
            if matrix is None or not course.keep_interrupted:
                raise
            return _Aligned(matrix, stages, True)
        stages.append(stage)
        course.clock.lap(stage.name)
        if stage.interrupted:
            return _Aligned(matrix, stages, True)
    return _Aligned(np.eye(4) if matrix is None else matrix, stages, False)


def _finish(
    source: _Source, found: _Found, course: _Course, info: tuple[str, str, int, int], outside: float
) -> Registration:
    """Inverse, warped image and figures."""
    give_back_memory()
    grid, ops, clock = source.fixed_grid, course.ops, course.clock
    forward = backward = None
    if found.displacement is not None:
        forward = found.displacement.to(device=course.device, dtype=torch.float32).contiguous()
        backward = ops.invert(forward)[0]
    clock.lap("inverse")
    figures = measure(found.matrix, forward, backward, grid=grid, foreground=found.foreground, ops=ops)
    clock.lap("figures")
    affine = Affine(found.matrix, "fixed", "moving", grid.ndim)
    warp = None if forward is None else Warp(forward.cpu(), grid, "fixed", "fixed")
    inverse_warp = None if backward is None else Warp(backward.cpu(), grid, "fixed", "fixed")
    transform = affine if warp is None else Chain((warp, affine), "fixed", "moving")
    warped = transform.resample(source.moving, grid, outside=outside)
    clock.lap("warped image")
    device, backend, threads, seed = info
    return Registration(
        warped=warped,
        affine=affine,
        warp=warp,
        inverse_warp=inverse_warp,
        moving_grid=source.moving.grid,
        history=found.stages,
        status=_status(found),
        interrupted=found.interrupted,
        figures=figures,
        recipe=found.recipe,
        run=RunInfo(
            device=device,
            backend=backend,
            threads=threads,
            seed=seed,
            seconds=clock.with_total(),
            peak_memory_mb=peak_memory_mb(),
            versions=versions(),
            nonfinite=found.nonfinite,
            missing=found.missing,
            names=source.names,
        ),
    )


def _status(found: _Found) -> str:
    if found.interrupted and not any(stage.interrupted for stage in found.stages):
        return INTERRUPTED
    return found.stages[-1].status if found.stages else "Nothing was asked for beyond the initial transform."

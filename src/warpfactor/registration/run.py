"""`register`: two images in, a Registration out; runs the stages of a recipe one after the other."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event as StopEvent
from typing import Any, NamedTuple

import torch

from warpfactor import kernels
from warpfactor.checks.device.record import unverified
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.memory import limit_bytes, memory_errors
from warpfactor.ranks.crew import Ranks
from warpfactor.ranks.work import check_backend, check_shared
from warpfactor.recipebook.files import recipe as find_recipe
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.ahead import compile_ahead
from warpfactor.registration.align import refined, run_linear_stages, with_gaps
from warpfactor.registration.finish import StageResults, finish
from warpfactor.registration.guides import LandmarkPair, load_guides
from warpfactor.registration.inputs import (
    Channels,
    Images,
    Initial,
    Spacing,
    check_lengths,
    check_weights,
    load_initial,
    load_mask,
    load_pair,
)
from warpfactor.registration.large import Opened, open_planned, without_voxels
from warpfactor.registration.plan import REMEDY, Beside, MemoryPlan, check_room
from warpfactor.registration.provenance import recorded
from warpfactor.registration.resources import Clock, checked_device, limited_threads, seeded
from warpfactor.registration.result import Registration
from warpfactor.registration.running import RunContext
from warpfactor.scene.missing import gap_shares, without_gaps
from warpfactor.scene.object import shown
from warpfactor.scene.prepare import make_scene, stored
from warpfactor.scene.scene import Scene
from warpfactor.show.wording import warn_of
from warpfactor.stages.contrasts import same_contrast
from warpfactor.stages.deform import check_given, run_deformable, treats_alike, working_grid
from warpfactor.stages.finest import COARSER
from warpfactor.stages.found import Found
from warpfactor.stages.stage import Ending, Progress
from warpfactor.terms import Weighted
from warpfactor.terms.regularity import OfWarp

_log = logging.getLogger(__name__)


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
    fixed_channels: Channels = None,
    moving_channels: Channels = None,
    channel_weights: Sequence[float] | None = None,
    landmarks: Any = None,
    landmarks_weight: float = 1.0,
    terms: Sequence[Any] = (),
    metric_weight: float = 1.0,
    outside: float | None = None,
    device: str | torch.device = "cpu",
    backend: str | kernels.Backend = "auto",
    threads: int | None = None,
    ranks: int | Ranks = 1,
    seed: int = 0,
    memory: str | float | MemoryPlan | None = None,
    on_plan: Callable[[MemoryPlan], None] | None = None,
    on_read: Callable[[Images], None] | None = None,
    progress: Progress | None = None,
    stop: StopEvent | None = None,
) -> Registration:
    """Find the transform that maps a moving image onto a fixed image.

    Args:
        fixed, moving: each a path, an Image, an array, a SimpleITK, nibabel or ANTs image, or a list of those on one
            grid: channels that are registered together.
        recipe: a name of `recipes()`, a .toml or .json file, or a Recipe.
        overrides: settings to change in the recipe, by dotted name; see Recipe.replace.
        fixed_mask, moving_mask: masks of the images, on their grids; voxels other than zero are used.
        initial: a transform, 4x4 matrix (LPS mm, fixed to moving) or transform files to start from. Linear stages go on
            from its matrix; if it has a warp they are left out and the deformable stage goes on from that.
        fixed_spacing_mm, moving_spacing_mm: spacing along (z, y, x) of arrays (1 by default), or of files, instead of
            that in their headers.
        fixed_channels, moving_channels: which channels of the images to register, counted from 1; all by default.
        channel_weights: weights of the channels in the deformable stage's metric; equal by default.
        landmarks: corresponding points to use in the deformable stage: a CSV file (see `read_landmarks`), or a pair
            (fixed, moving) of (N, 3) arrays, LPS mm.
        landmarks_weight: weight of the landmarks in the cost; with 1 they have as much influence as the images around
            them.
        terms: what else the deformable stage minimises, each with its weight: ImagePair, LabelPair, LandmarkPair, a
            term of the warp such as Bending(), or a term of your own, alone or as Weighted(term, weight).
        metric_weight: weight of the metric of `fixed` and `moving` relative to these terms.
        outside: value of the warped image where there is no moving image; the moving image's own background by
            default.
        device, backend: device and implementation of the computations; `warpfactor info` lists them.
        threads: maximum number of threads (default: all cores); of every rank, if there are several.
        ranks: how many processes of this machine share the deformable stage, or Ranks on several machines. The result
            is that of one process, bit for bit.
        seed: seed of random numbers, which only your own loss can use.
        memory: limit of memory, such as "8GB". If it is too low, an OutOfMemoryError is raised before the run starts.
            Large images are processed in parts to keep to it; see MemoryPlan. If the warp has to stay on a grid twice
            as coarse as the fixed image, the images of the result are the coarse ones, and `save` writes the full
            warped image.
        on_plan: called with the plan that follows from `memory`, before the images are read.
        on_read: called with the images and masks once they are read, before anything is computed. It can refuse them
            by raising an error, for instance because label maps do not belong to them.
        progress: called with an Event after every iteration, in the thread that called `register`. An exception that it
            raises, such as Cancelled, ends the run and comes out of `register`.
        stop: a threading.Event. Set it from another thread or a signal handler to end the run after the current
            iteration; the best result so far is returned, with `interrupted` set.

    >>> import warpfactor as wf
    >>> made = wf.phantom.phantom((24, 26, 24))
    >>> result = wf.register(made.fixed, made.moving, recipe="fast")
    >>> result.history[-1].cost_after < result.history[-1].cost_before
    True
    """
    clock = Clock()
    if stop is not None and not isinstance(stop, StopEvent):
        raise InputError(f"The argument stop={stop!r} must be a threading.Event, which you set to end the run.")
    chosen = _recipe(recipe, overrides, channel_weights)
    place = checked_device(device)
    choice = kernels.choose(place, backend)
    _check_storage(chosen, choice)
    warn_of(unverified(place, choice.name))
    wanted = _Wanted((fixed_spacing_mm, moving_spacing_mm), (fixed_channels, moving_channels), threads)
    beside = Beside(landmarks is not None or bool(terms), ranks != 1, (fixed_mask is not None, moving_mask is not None))
    limited = partial(open_planned, sources=(fixed, moving), recipe=chosen, **wanted.of_images, device=place)
    opened = _planned(partial(limited, beside=beside), memory, on_plan, choice.name)
    chosen = chosen if opened is None else opened.recipe
    ops = choice.load()
    with memory_errors(REMEDY):
        read = partial(_read, fixed, moving, wanted) if opened is None else partial(opened.read, ops, threads)
        images = read(fixed_mask, moving_mask)
    if initial is None:
        check_lengths(images)
    if place.type == "cpu" and opened is None:
        check_room(images, chosen)
    chosen = _fitted(chosen, images)
    start = load_initial(initial, images.fixed.grid, ops)
    guides = load_guides((*_points(landmarks, landmarks_weight), *terms), images, ops, place)
    led = _Led(guides, metric_weight, chosen)
    if on_read is not None:
        on_read(images)
    if chosen.deformable is not None:
        check_given(chosen.deformable, start.displacement)
    if ranks != 1:
        _check_shared(chosen, start, led, images.fixed.grid, choice.name)
    sources = _paths(fixed=fixed, moving=moving, fixed_mask=fixed_mask, moving_mask=moving_mask)
    prints = {name: recorded(path) for name, path in sources.items()}
    del fixed, moving, fixed_mask, moving_mask, initial  # the images are held once, by `images`
    clock.lap("read")
    with memory_errors(REMEDY), limited_threads(threads) as used, seeded(seed), _sharing(ranks, threads) as crew:
        coarser = COARSER if opened is not None and opened.plan.coarser else 1
        run = RunContext(ops, choice.name, place, used, seed, clock, progress, stop, crew, coarser)
        run.log_start(images, chosen)
        scene = _prepare(images, chosen, run)
        found = _run_stages(scene, chosen, start, led, run)
        del scene, start
        if opened is not None and opened.plan.coarser and found.warped is not None and not found.interrupted:
            images = without_voxels(images)
            found = _at_full_resolution(found, opened, replace(run, coarser=1))
            images = opened.read_again(images, ops)
            clock.lap("read")
        result = finish(images, found, run, outside)
        result = replace(result, run=replace(result.run, sources=sources, prints=prints))
        return result if opened is None else opened.described(result)


def _recipe(spec: str | Recipe, overrides: Mapping[str, Any] | None, channel_weights: Sequence[float] | None) -> Recipe:
    changes = dict(overrides or {})
    if channel_weights is not None:
        changes["deformable.channel_weights"] = tuple(channel_weights)
    return find_recipe(spec).replace(changes)


def _fitted(recipe: Recipe, images: Images) -> Recipe:
    """The recipe for these images: levels and iterations follow from their size."""
    if recipe.deformable is None:
        return recipe
    check_weights(recipe.deformable.channel_weights, images)
    return recipe.for_grid(working_grid(recipe.deformable, images.fixed.grid, images.moving.grid))


@dataclass(frozen=True)
class _Led:
    """What guides the deformable stage besides the images, and how much the images themselves weigh."""

    guides: tuple[Weighted, ...]
    metric_weight: float
    recipe: InitVar[Recipe]

    @property
    def pulls(self) -> bool:
        """Whether anything but a term of the warp itself guides it."""
        return any(not isinstance(guide.term, OfWarp) for guide in self.guides)

    def __post_init__(self, recipe: Recipe) -> None:
        if not 0 <= self.metric_weight < math.inf:
            raise InputError(f"The weight of the images is {self.metric_weight:g}; it must be 0 or a positive number.")
        if self.metric_weight == 0 and not self.guides:
            raise InputError(
                "The weights of all terms are zero, that of the images too (metric_weight, --weight); at least one "
                "must be positive."
            )
        if self.guides and recipe.deformable is None:
            raise InputError(
                f"The recipe {recipe.name!r} has no deformable stage, which is what {self.guides[0].term.name} would "
                "guide; choose another recipe, or leave the terms out."
            )


def _planned(
    open_within: Callable[..., Opened],
    memory: str | float | MemoryPlan | None,
    on_plan: Callable[[MemoryPlan], None] | None,
    backend: str,
) -> Opened | None:
    """The images opened for a limit of memory; None without one."""
    if memory is None:
        return None
    if not isinstance(memory, MemoryPlan):
        memory = limit_bytes(memory)
        if backend == "numba":
            open_within = partial(open_within, before_planning=compile_ahead)
    opened = open_within(memory)
    if on_plan is not None:
        on_plan(opened.plan)
    return opened


def _check_shared(recipe: Recipe, start: Initial, led: _Led, grid: Grid, backend: str) -> None:
    check_backend(backend)
    warped, guided = start.displacement is not None, bool(led.guides) or led.metric_weight != 1
    check_shared(recipe.deformable, guided=guided, warped=warped, depth=grid.shape[0])


@contextmanager
def _sharing(ranks: int | Ranks, threads: int | None) -> Iterator[Ranks | None]:
    """The ranks that share the deformable stage; those that are started here end with the block."""
    if isinstance(ranks, Ranks):
        yield ranks
    elif ranks == 1:
        yield None
    else:
        with Ranks.local(ranks, threads=threads) as crew:
            yield crew


def _points(landmarks: Any, weight: float) -> tuple[LandmarkPair, ...]:
    """The guide of the argument `landmarks`; none without any."""
    if landmarks is None or weight == 0:
        return ()
    if isinstance(landmarks, (str, Path)):
        return (LandmarkPair(landmarks, weight=weight),)
    fixed, moving = landmarks
    return (LandmarkPair(fixed, moving, weight),)


class _Wanted(NamedTuple):
    """What is to be read of the fixed and the moving image, and by how many threads."""

    spacings_mm: tuple[Spacing, Spacing]
    channels: tuple[Channels, Channels]
    threads: int | None

    @property
    def of_images(self) -> dict[str, Any]:
        """All but the threads."""
        return {"spacings_mm": self.spacings_mm, "channels": self.channels}


def _read(fixed: Any, moving: Any, wanted: _Wanted, fixed_mask: Any, moving_mask: Any) -> Images:
    fixed_image, moving_image = load_pair(fixed, moving, **wanted._asdict())
    return Images(
        fixed_image,
        moving_image,
        load_mask(fixed_mask, fixed_image, name="fixed mask"),
        load_mask(moving_mask, moving_image, name="moving mask"),
    )


def _paths(**given: Any) -> dict[str, Path]:
    """The absolute paths among what `register` was given, by name; of several channels that of the first."""
    first = {name: each[0] if isinstance(each, (list, tuple)) and each else each for name, each in given.items()}
    return {name: Path(each).absolute() for name, each in first.items() if isinstance(each, (str, Path))}


def _check_storage(recipe: Recipe, backend: kernels.Backend) -> None:
    if recipe.deformable is not None and recipe.deformable.storage == "float16" and not backend.half:
        raise InputError(
            f"Backend {backend.name!r} does not read images of half precision; use deformable.storage=int16, which "
            "takes as little memory, or a GPU."
        )


def _prepare(images: Images, recipe: Recipe, run: RunContext) -> Scene:
    scene = make_scene(
        images.fixed,
        images.moving,
        ops=run.ops,
        fixed_mask=images.fixed_mask,
        moving_mask=images.moving_mask,
        device=run.device,
    )
    if recipe.deformable is not None:
        scene = stored(scene, recipe.deformable.storage)
    run.clock.lap("prepare")
    return scene


def _run_stages(scene: Scene, recipe: Recipe, start: Initial, led: _Led, run: RunContext) -> StageResults:
    linear = () if start.displacement is not None else recipe.linear
    aligned = run_linear_stages(scene, linear, start.matrix, run)
    missing = (0.0, 0.0)
    if linear and not aligned.interrupted:  # where nothing was aligned, what lies apart is not missing
        aligned, gaps = with_gaps(scene, linear, start.matrix, aligned, run)
        scene, missing = without_gaps(scene, gaps, run.ops), gap_shares(gaps)
        if gaps:
            aligned = refined(scene, linear, aligned, run)
        del gaps
        run.clock.lap("missing parts")
    stages, displacement, where = aligned.stages, start.displacement, None
    warped: Found | None = None
    if displacement is not None or recipe.deformable is not None:
        where = shown(scene.fixed).cpu()
    if recipe.deformable is not None and recipe.across is not None and not run.stopped:
        alike = treats_alike(recipe.deformable)
        same = same_contrast(scene, aligned.matrix, recipe.deformable, run.ops, both_ways=alike)
        recipe = recipe.for_contrasts(same=same)
        run.clock.lap("contrasts")
    if recipe.deformable is not None and not run.stopped:
        if led.pulls:
            recipe = recipe.for_guides()
        elif recipe.broad is None:
            recipe = recipe.for_motion(broad=False)
        warped = _warped(scene, recipe, aligned.matrix, start, led, run)
        if recipe.broad is not None:
            broad = warped.stage.ending is Ending.BROAD
            recipe = recipe.for_motion(broad=broad)
            if broad:
                warped = _warped(scene, recipe, aligned.matrix, start, led, run)
        displacement, stages = warped.displacement, (*stages, warped.stage)
        run.clock.lap("deformable")
    return StageResults(
        recipe=recipe,
        matrix=aligned.matrix,
        displacement=displacement,
        warped=warped,
        stages=tuple(stage.counted(run.coarser) for stage in stages),
        interrupted=run.stopped,
        foreground=where,
        nonfinite=(scene.fixed.nonfinite, scene.moving.nonfinite),
        missing=missing,
        masks=(scene.fixed.mask, scene.moving.mask),
    )


def _warped(scene: Scene, recipe: Recipe, matrix: Matrix, start: Initial, led: _Led, run: RunContext) -> Found:
    """What the deformable stage finds."""
    assert recipe.deformable is not None
    if run.crew is None:
        found = run_deformable(
            scene,
            recipe.deformable,
            ops=run.ops,
            affine=matrix,
            start=start.displacement,
            guides=led.guides,
            metric_weight=led.metric_weight,
            watch=run.watch(),
        )
    else:
        _check_shared(recipe, start, led, scene.fixed.grid, run.backend)
        found = run.crew.run(scene, recipe.deformable, ops=run.ops, affine=matrix, watch=run.watch())
    run.log_stage(found.stage)
    return found


def _at_full_resolution(found: StageResults, opened: Opened, run: RunContext) -> StageResults:
    """What the stages found at half the resolution, after the finest level of the deformable one."""
    settings = opened.full(found.recipe).deformable
    assert settings is not None and found.warped is not None
    warped = replace(found.warped, stage=found.stages[-1])
    gaps = [mask if share else None for mask, share in zip(found.masks, found.missing, strict=True)]
    watch = run.watch(warped.stage.seconds)
    finer = opened.refine(warped, settings, found.matrix, gaps, ops=run.ops, watch=watch)
    run.log_stage(finer.stage)
    run.clock.lap("finest level")
    stages = (*found.stages[:-1], finer.stage)
    return replace(found, displacement=finer.displacement, warped=finer, stages=stages, interrupted=run.stopped)

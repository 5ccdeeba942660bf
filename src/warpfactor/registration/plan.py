"""The memory that a registration needs, from the sizes of its images: a check, or a plan that keeps to a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from warpfactor.errors import InputError, OutOfMemoryError
from warpfactor.geometry.grid import Grid
from warpfactor.io.lazy import LazyImage
from warpfactor.memory import check_memory, limit_bytes, shown_bytes, used_bytes
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.ahead import compiling_bytes
from warpfactor.registration.inputs import Images
from warpfactor.stages.deform import runs_coarser, voxel_bytes
from warpfactor.stages.finest import can_be_coarser, warp_grid
from warpfactor.stages.settings import Deformable
from warpfactor.terms.base import Local

REMEDY = "crop the images to the region of interest, or resample them to a coarser spacing"
SURE = 0.8  # of what was measured: the estimate is from below, so that nothing is refused that would fit
LINEAR_BYTES = 8  # per voxel of the fixed image, besides the images as they were read
CHANNEL_BYTES = 4  # of either image, in single precision
# Bytes, counted in the code and checked by runs of up to 256³ voxels; docs/benchmarks/large.md.
LIBRARIES = 570e6  # of Python, PyTorch, Numba and compiled kernels
LINEAR_RUN = 16  # a voxel of the images that are registered without a warp, besides the images as they were read
SHORT_IMAGES = 4  # saved of them by 16-bit images
FIELD = 12  # a voxel of a displacement field
LEVEL_EXTRA = 10  # a voxel of the warp's grid while a step is made of the gradient, when there is no slab
KEPT_MASKS = 3  # a voxel of the warp's grid: where the fixed image shows something, and the masks of both
SLAB = 34  # a voxel of a slab, besides what the metric holds of it
READING = 96e6  # planes that are read, or written, at once
SPARE = 0.93  # of the limit, where slabs can be thinner: runs of 512³ voxels took 0.92 to 1.04 of what was predicted
THICKEST, THINNEST, LEAST = 64, 8, 2  # planes of a slab; the least is for metrics that hold more of it


@dataclass(frozen=True)
class MemoryPlan:
    """What is held in memory, and what that is predicted to take.

    Attributes:
        limit_bytes: what was allowed.
        predicted_bytes: peak memory of the process that follows from the sizes.
        images: number type of the full images in memory, "float32" or "int16".
        warp: "full", on the grid of the fixed image, or "half", on one twice as coarse.
        slab_planes: planes of the fixed image that are worked on at once; None for all.
        parts: predicted bytes by part of the run.
    """

    limit_bytes: int
    predicted_bytes: int
    images: str
    warp: str
    slab_planes: int | None
    parts: dict[str, int]

    @property
    def coarser(self) -> bool:
        """Whether the images are registered at half their resolution first, and the warp stays there."""
        return self.warp == "half"

    @property
    def sentence(self) -> str:
        """For people, before the run starts."""
        resolution = "the" if self.warp == "full" else "half the"
        how = f"images as {self.images}, warp at {resolution} resolution of the fixed image"
        slabs = "" if self.slab_planes is None else f", in slabs of {self.slab_planes} planes"
        return (
            f"Memory: {how}{slabs}; predicted peak {shown_bytes(self.predicted_bytes)}, "
            f"limit {shown_bytes(self.limit_bytes)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """For result.json."""
        return asdict(self)


@dataclass(frozen=True)
class Beside:
    """What there is in a registration besides the two images.

    Attributes:
        guided: whether something else leads the warp, which needs whole fields.
        shared: whether ranks share the deformable stage. None of them needs more than one process does.
        masked: whether the fixed and the moving image have a mask.
    """

    guided: bool = False
    shared: bool = False
    masked: tuple[bool, bool] = (False, False)


def make_plan(
    limit: str | float | MemoryPlan,
    fixed: LazyImage,
    moving: LazyImage,
    recipe: Recipe,
    beside: Beside | None = None,
) -> MemoryPlan:
    """The first way that keeps within the limit, of those that cost least accuracy first.

    Args:
        limit: such as "8GB" or a number of bytes; or a plan that is to be followed.
        fixed, moving: the images.
        recipe: for the fixed image's grid.
        beside: what there is besides the images; nothing by default.

    Raises:
        OutOfMemoryError: if none does; it says what the least is.
    """
    beside = beside or Beside()
    if isinstance(limit, MemoryPlan):
        if limit.coarser and (beside.shared or not can_run_coarser(recipe)):
            raise InputError(
                f"The warp of the recipe {recipe.name!r} cannot be kept at half resolution for these images."
            )
        return limit
    bytes_allowed = limit_bytes(limit)
    masked = zip((fixed, moving), beside.masked, strict=True)
    pair = _Pair(fixed, moving, sum(image.grid.voxel_count for image, has_mask in masked if has_mask))
    coarser = can_run_coarser(recipe) and not beside.guided and not beside.shared
    plans = _ways(bytes_allowed, pair, recipe, coarser=coarser)
    fitting = _chosen([plan for plan in plans if plan.predicted_bytes <= bytes_allowed])
    if fitting is None:
        least = min(plan.predicted_bytes for plan in plans)
        program = LIBRARIES + compiling_bytes()
        taken = f", of which the program itself takes {shown_bytes(program)}; raise the limit"
        raise OutOfMemoryError(
            f"A memory limit of {shown_bytes(bytes_allowed)} is too low: registering {fixed.name} "
            f"({fixed.grid.summary}) and {moving.name} needs at least {shown_bytes(least)}"
            f"{taken if bytes_allowed <= program else _why(recipe, beside)}."
        )
    return fitting


def _chosen(fitting: Sequence[MemoryPlan]) -> MemoryPlan | None:
    """The first of the plans that fit; of those that differ in their slabs only, the first with something to spare."""
    if not fitting or not fitting[0].coarser:
        return next(iter(fitting), None)
    return next((plan for plan in fitting if plan.predicted_bytes <= SPARE * plan.limit_bytes), fitting[-1])


def own_bytes(held: int = 0) -> float:
    """Memory of this process besides the images: what it has now without those it holds, or at least its libraries."""
    return max(LIBRARIES, used_bytes() - held) + compiling_bytes()


def can_run_coarser(recipe: Recipe) -> bool:
    """Whether the warp of a recipe can stay on a coarser grid."""
    stages = [each for each in (recipe.deformable, recipe.across) if each is not None]
    return all(runs_coarser(each) and can_be_coarser(each) for each in stages)


def _why(recipe: Recipe, beside: Beside) -> str:
    """Why there is no way that takes less."""
    if beside.shared:
        return " in rank 0, because ranks cannot keep the warp at half resolution; without ranks it needs less"
    if beside.guided:
        return ", because landmarks and further terms need the whole displacement field; without them it needs less"
    stages = [each for each in (recipe.deformable, recipe.across) if each is not None]
    whole = [each.metric.name for each in stages if not isinstance(each.metric, Local)]
    if can_run_coarser(recipe):
        return "; crop the images, or register a coarser level of them"
    if whole:
        return f", because the metric {whole[0]} needs whole images; the recipe brain, for example, needs less"
    return ", because the recipe needs the whole displacement field; the recipe brain, for example, needs less"


class _Pair(NamedTuple):
    """The images, and the bytes of the masks that were given with them."""

    fixed: LazyImage
    moving: LazyImage
    mask_bytes: int

    @property
    def images(self) -> tuple[LazyImage, LazyImage]:
        return self.fixed, self.moving

    @property
    def held_bytes(self) -> int:
        return self.fixed.held_bytes + self.moving.held_bytes


def _ways(allowed: int, pair: _Pair, recipe: Recipe, *, coarser: bool) -> list[MemoryPlan]:
    base = own_bytes(pair.held_bytes)
    whole = _whole_parts(base, pair, recipe)
    ways = [_plan(allowed, whole, "float32", "full", None)]
    if recipe.deformable is not None:
        saved = SHORT_IMAGES / 2 * sum(image.channels * image.grid.voxel_count for image in pair.images)
        short = {**whole, "registration": whole["registration"] - saved}
        ways.append(_plan(allowed, short, "int16", "full", None))
    if coarser:
        planes = THICKEST
        ways.append(_coarser(allowed, base, pair, recipe, planes))
        while ways[-1].predicted_bytes > SPARE * allowed and planes > THINNEST:
            planes = _thinner(planes)
            ways.append(_coarser(allowed, base, pair, recipe, planes))
    return ways


def _thinner(planes: int) -> int:
    """The next number of planes of a slab to try."""
    return max(THINNEST, planes * 3 // 4 // 2 * 2)


def _whole_parts(base: float, pair: _Pair, recipe: Recipe) -> dict[str, float]:
    """Of a run whose images are read whole."""
    images = 4 * sum(image.channels * image.grid.voxel_count for image in pair.images)
    more = 4 * sum((image.channels - 1) * image.grid.voxel_count for image in pair.images)
    return {
        "registration": base + images + more + 2 * pair.mask_bytes + _run_bytes(recipe) * pair.fixed.grid.voxel_count
    }


def _run_bytes(recipe: Recipe) -> int:
    """A voxel of the images that are registered, besides the images as they were read."""
    return LINEAR_RUN if recipe.deformable is None else voxel_bytes(recipe.deformable)


def _coarser(allowed: int, base: float, pair: _Pair, recipe: Recipe, planes: int) -> MemoryPlan:
    """Of a run at half the resolution, and of its finest level by slabs, beside which no coarse image is held."""
    kept = base + pair.held_bytes + pair.mask_bytes
    grids = warp_grid(pair.fixed.grid), warp_grid(pair.moving.grid)
    small = grids[0].voxel_count
    short = [2 * image.grid.voxel_count for image in pair.images]
    coarse = 4 * sum(image.channels * grid.voxel_count for image, grid in zip(pair.images, grids, strict=True))
    more = coarse - 4 * sum(grid.voxel_count for grid in grids)
    stages = [each for each in (recipe.deformable, recipe.across) if each is not None]
    slab = max((slab_bytes(recipe, each, pair.fixed.grid, planes) for each in stages), default=0)
    parts = {
        "reading": kept + max(short) + coarse + small * 4 + READING,
        "coarser levels": kept + coarse + more + _run_bytes(recipe) * small,
    }
    if stages:
        full = sum(count * image.channels for count, image in zip(short, pair.images, strict=True))
        fields = 2 * FIELD + KEPT_MASKS
        parts["finest level"] = kept + full + fields * small + max(slab, READING, LEVEL_EXTRA * small)
    parts["writing"] = kept + coarse + 3 * FIELD * small + READING + slab
    return _plan(allowed, parts, "int16", "half", planes if stages else None)


def slab_bytes(recipe: Recipe, stage: Deformable, grid: Grid, planes: int) -> int:
    """What a slab takes; `planes` are those of the recipe's first choice of metric."""
    assert isinstance(stage.metric, Local)
    reach = stage.metric.reach(len(stage.levels) - 1)
    own = planes_for(recipe, stage, planes)
    return (SLAB + stage.metric.slab_bytes) * (own + 2 * reach) * math.prod(grid.shape[1:])


def planes_beside(plan: MemoryPlan, recipe: Recipe, stage: Deformable, grid: Grid, unplanned_bytes: int) -> int:
    """Planes of a slab with the metric of a stage: fewer than planned if masks came up that nobody could foresee.

    Those of missing parts and of voxels without a value are found on the way.
    """
    planes = THINNEST if plan.slab_planes is None else plan.slab_planes
    room = plan.limit_bytes - plan.parts.get("finest level", 0) - unplanned_bytes
    planned = slab_bytes(recipe, stage, grid, planes)
    while planes > THINNEST and slab_bytes(recipe, stage, grid, planes) > room + planned:
        planes = _thinner(planes)
    return planes_for(recipe, stage, planes)


def planes_for(recipe: Recipe, stage: Deformable, planes: int) -> int:
    """Planes of a slab with the metric of a stage, so that it takes about as much as with the recipe's first choice."""
    first = recipe.deformable
    assert first is not None and isinstance(first.metric, Local) and isinstance(stage.metric, Local)
    if stage.metric == first.metric:
        return planes
    room = (SLAB + first.metric.slab_bytes) * (planes + 2 * first.metric.reach(len(first.levels) - 1))
    own = room // (SLAB + stage.metric.slab_bytes) - 2 * stage.metric.reach(len(stage.levels) - 1)
    return max(LEAST, own // 2 * 2)


def _plan(allowed: int, parts: dict[str, float], images: str, warp: str, planes: int | None) -> MemoryPlan:
    whole = {name: round(count) for name, count in parts.items()}
    return MemoryPlan(allowed, max(whole.values()), images, warp, planes, whole)


def without_finest(recipe: Recipe) -> Recipe:
    """The recipe for images at half their resolution: all levels but the finest."""
    recipe = recipe.for_motion(broad=False)  # the finest level would tell, and it is not among them
    changed = {
        name: None
        if stage is None
        else replace(
            stage,
            levels=tuple(factor / 2 for factor in stage.levels[:-1]),
            iterations=stage.iterations[:-1],
            coarsest=0,
            meant_for=0,
        )
        for name, stage in (("deformable", recipe.deformable), ("across", recipe.across))
    }
    return replace(recipe, **changed)  # type: ignore[arg-type]


def check_room(images: Images, recipe: Recipe) -> None:
    """Raise an OutOfMemoryError if a registration of these images cannot fit into the memory that is left."""
    check_memory(needed_bytes(images, recipe), "This registration", remedy=REMEDY)


def needed_bytes(images: Images, recipe: Recipe) -> int:
    """What a registration will at least allocate besides its images."""
    fixed, moving = images.fixed, images.moving
    each = LINEAR_BYTES if recipe.deformable is None else round(SURE * voxel_bytes(recipe.deformable))
    channels = CHANNEL_BYTES * (fixed.grid.voxel_count * fixed.channels + moving.grid.voxel_count * moving.channels)
    return each * fixed.grid.voxel_count + channels

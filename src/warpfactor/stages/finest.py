"""The finest level with the warp on a grid twice as coarse as the images, so that memory is that of the images.

The images are compared at their full resolution, slab by slab: the warp of a slab is interpolated, and the force on its
voxels is added up to that on the voxels of the warp. Nothing but the images is then as large as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import give_back_memory, new_field
from warpfactor.kernels.ops import Ops, Slab
from warpfactor.kernels.taps import gaussian_variance, sigma_of_variance
from warpfactor.scene.levels import Level, finest_spacing
from warpfactor.scene.scene import Scene
from warpfactor.stages.agreement import Agreement, agreement_of_blocks, blocks_of
from warpfactor.stages.level import Carried, Iteration, LevelSolver, level_units
from warpfactor.stages.pyramid import reporter, stage_ending
from warpfactor.stages.repair import repair
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Ending, Stage, Watch
from warpfactor.terms import Linearization, Prepared, Term
from warpfactor.terms.base import Local

COARSER = 2  # voxels of an image along a voxel of its warp
# Variance of what smooths without a Gaussian, in squared voxels of the warp: a force is added up a quarter voxel off,
# and a step is interpolated between two voxels.
OWN_VARIANCE = 1 / 16 + 3 / 16


def warp_grid(grid: Grid) -> Grid:
    """The grid of the warp of an image: twice as coarse along the axes that are finer than twice the finest one."""
    finest = finest_spacing(grid)
    sizes = zip(grid.shape, grid.spacing_mm, strict=True)
    return grid.scaled([COARSER if n > 1 and s < COARSER * finest * 0.999 else 1 for n, s in sizes])


def can_be_coarser(settings: Deformable) -> bool:
    """Whether a stage with these settings can have its finest level on a coarser grid."""
    fits = settings.damping.relative and settings.units == "spacing" and settings.levels[-2:] == (COARSER, 1)
    return fits and isinstance(settings.metric, Local) and settings.optimizer.damped


def run_finest(
    scene: Scene,
    settings: Deformable,
    start: Tensor | None,
    *,
    before: Stage,
    ops: Ops,
    affine: Matrix,
    planes: int,
    watch: Watch,
) -> tuple[Tensor | None, Stage]:
    """The warp after the finest level, on `warp_grid` of the fixed image, and how the whole stage went.

    Args:
        scene: the images at full resolution.
        settings: of the whole stage; the last level is run.
        start: (3, *warp grid) displacement in its voxels, which is overwritten; None starts at zero.
        before: how the coarser levels went, by factors of the full images.
        affine: 4x4, LPS mm, fixed to moving world.
        planes: of the fixed image that are worked on at once.
        watch: who is told, and who may stop it; its clock goes on from that of the coarser levels.
    """
    grid, number = warp_grid(scene.fixed.grid), len(settings.levels) - 1
    level = Level(number, settings.levels[-1], settings.iterations[-1], finest=True, scene=scene)
    matrix = VoxelMap(scene.fixed.grid, None, affine).matrix(scene.moving.grid)
    report = reporter(level, scene.fixed.grid, settings, watch)
    solver = HalfGridLevel(level, matrix, settings, ops, grid, planes, report, lambda: watch.stopped)
    zero = new_field((3, *grid.shape)).zero_()
    first = solver.cost.linearize(zero, matrix)
    warp = zero if start is None else start
    del zero
    warp, ending = solver.run(warp, Carried())
    if settings.volume > 0:
        repair(warp, ops)
    last = solver.cost.linearize(warp, matrix)
    give_back_memory()
    levels = (*before.levels, (level.factor, ending))
    kept = last.cost <= first.cost or not first.count
    stage = replace(
        before,
        level=1.0,
        cost_before=first.cost if first.count else math.inf,
        cost_after=last.cost,
        ending=stage_ending(list(levels)) if kept else Ending.WORSE,
        kept=kept,
        seconds=watch.seconds,
        history=(*before.history, *watch.events),
        levels=levels,
    )
    return (warp if kept else None), stage


class HalfGridLevel(LevelSolver):
    """Runs the finest level; lengths in its settings are those of the warp's grid.

    Args:
        level, matrix, settings, ops, report, stop: as for LevelSolver; settings are in voxels of the image.
        grid: of the warp.
        planes: of the fixed image that are worked on at once.
    """

    def __init__(
        self,
        level: Level,
        matrix: Tensor,
        settings: Deformable,
        ops: Ops,
        grid: Grid,
        planes: int,
        report: Callable[[Iteration], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        image = level.scene.fixed.grid
        ratio = finest_spacing(image) / finest_spacing(grid)
        self._grid, self._planes = grid, planes
        self._image_sigma = [settings.sigma_grad * s for s in level_units(image, settings).sigma]
        own = replace(
            settings,
            step=settings.step * ratio,
            sigma_grad=settings.sigma_grad * ratio,
            sigma_warp=settings.sigma_warp * ratio,
            volume=settings.volume * ratio**2,
        )

        def tell(done: Iteration) -> None:
            report(replace(done, step_vox=done.step_vox / ratio))

        self._warp_sigma = [settings.sigma_warp * s for s in level_units(image, settings).sigma]
        super().__init__(level, matrix, own, ops, tell, stop)

    @property
    def grid(self) -> Grid:
        """The grid of the warp."""
        return self._grid

    def _prepared(self, metric: Term) -> Prepared:
        if not isinstance(metric, Local):
            raise InputError(
                f"The term {metric.name} needs whole images, so it cannot be used with a memory limit; leave "
                "the limit out, or use the metric lncc."
            )
        scene, number = self.level.scene, self.level.number
        slabs = make_slabs(scene.shape[0], self._planes, metric.reach(number))
        parts = metric.prepare_slabs(scene, self.ops, slabs, level=number, weights=self.settings.channel_weights)
        return SlabCost(parts, slabs, scene.fixed.grid, self._grid, self.ops)

    def _smooth_force(self, force: Tensor) -> None:
        """Smooth it as a force on the voxels of the image would be.

        Adding the force up and interpolating the step smooth as well, which is left out of the Gaussian.
        """
        sigma = self._equal_sigma([self.widened * s for s in self._image_sigma], OWN_VARIANCE)
        settings = self.settings
        self.ops.smooth_gaussian(force, sigma, boundary=settings.boundary, truncate=settings.truncate, tail=self.tail)

    def _smooth_warp(self, warp: Tensor, share: float) -> None:
        """Smooth it by what a Gaussian does on the voxels of the image, of which the coarser ones see little."""
        wanted = [self.widened * math.sqrt(share) * s for s in self._warp_sigma]
        settings = self.settings
        self.ops.smooth_gaussian(
            warp, self._equal_sigma(wanted, 0.0), boundary=settings.boundary, truncate=settings.truncate
        )

    def _equal_sigma(self, sigma: Sequence[float], own: float) -> list[float]:
        """The SDs with which the voxels of the warp are smoothed as those of the image with these ones.

        Args:
            own: variance that a coarser axis has without a Gaussian, in its voxels squared.
        """
        truncate = self.settings.truncate
        pairs = zip(sigma, self.level.scene.shape, self._grid.shape, strict=True)
        return [
            sigma_of_variance(gaussian_variance(s, truncate) / COARSER**2 - own, truncate) if coarse < fine else s
            for s, fine, coarse in pairs
        ]

    def _halves(self, force: Tensor, wider: float) -> Agreement:
        """Of the force on the voxels of the image, of which the cost has kept some blocks."""
        cost = self.cost
        assert isinstance(cost, SlabCost)
        units = level_units(self.level.scene.fixed.grid, self.settings)
        sigma = [wider * s for s in self._image_sigma]
        return agreement_of_blocks(cost.blocks, self.level.scene.shape, units.weights, sigma, self.ops)


def make_slabs(depth: int, planes: int, reach: int) -> tuple[Slab, ...]:
    """Slabs of about as many planes that cover the depth; none begins between two planes of one of the warp."""
    count = max(1, math.ceil(depth / max(planes, COARSER)))
    thickness = math.ceil(math.ceil(depth / count) / COARSER) * COARSER
    cores = [slice(z, min(z + thickness, depth)) for z in range(0, depth, thickness)]
    return tuple(Slab(slice(max(0, core.start - reach), min(depth, core.stop + reach)), core) for core in cores)


@dataclass
class SlabCost:
    """A term over the images, as a function of a displacement on a coarser grid; see Prepared.

    Attributes:
        parts: the term over every slab.
        slabs: which planes of the fixed image they are.
        image, grid: of the fixed image, and of the displacement.
        blocks: of the last gradient at the resolution of the images; see blocks_of.
    """

    parts: Sequence[Prepared]
    slabs: Sequence[Slab]
    image: Grid
    grid: Grid
    ops: Ops
    blocks: list[Tensor] = field(default_factory=list)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize; displacement and gradient are on the coarser grid, in its voxels."""
        total = count = 0.0
        wide = max(slab.outer.stop - slab.outer.start for slab in self.slabs)
        room = None if gradient is None else new_field((3, wide, *self.image.shape[1:]))
        if gradient is not None:
            self.blocks = [new_field((3, *_lengths(block, self.image.shape))) for block in self._places]
        for part, slab in zip(self.parts, self.slabs, strict=True):
            fine = self._interpolated(displacement, slab.outer)
            force = None if room is None else room.reshape(-1)[: fine.numel()].view(fine.shape)
            point = part.linearize(fine, shifted(matrix, slab.outer.start), force)
            total, count = total + point.cost * point.count, count + point.count
            if gradient is not None and force is not None:
                self._keep(force, slab)
                self._restrict(force[:, slab.inner], slab, gradient)
            del fine  # before the next one is made
        cost = total / count if count else 0.0
        return Linearization(cost, cost, count)

    @property
    def _places(self) -> list[tuple[slice, ...]]:
        return blocks_of(self.image.shape)

    @property
    def _factors(self) -> list[int]:
        """Voxels of the image along a voxel of the displacement, per axis."""
        return [round(g / i) for g, i in zip(self.grid.spacing_mm, self.image.spacing_mm, strict=True)]

    def _interpolated(self, displacement: Tensor, planes: slice) -> Tensor:
        """The displacement of some planes of the image, in voxels of the image."""
        factors = self._factors
        scale, offset = [1 / f for f in factors], [(1 / f - 1) / 2 for f in factors]
        low = max(0, math.floor(scale[0] * planes.start + offset[0]))
        high = min(self.grid.shape[0], math.floor(scale[0] * (planes.stop - 1) + offset[0]) + 2)
        offset[0] += scale[0] * planes.start - low
        shape = (planes.stop - planes.start, *self.image.shape[1:])
        fine = self.ops.resize(displacement[:, low:high].contiguous(), shape, scale, offset)
        for component, factor in zip(fine, factors, strict=True):
            component *= factor
        return fine

    def _restrict(self, force: Tensor, slab: Slab, gradient: Tensor) -> None:
        """Add up the force on the voxels of the image to that on the voxels of the displacement."""
        factors = self._factors
        start = slab.core.start // factors[0]
        for component in range(3):
            part = force[component]
            for axis, factor in enumerate(factors):
                part = _in_pairs(part, axis) if factor > 1 else part
            torch.mul(part, factors[component], out=gradient[component, start : start + part.shape[0]])

    def _keep(self, force: Tensor, slab: Slab) -> None:
        """Keep what the blocks have in common with a slab."""
        for block, kept in zip(self._places, self.blocks, strict=True):
            low, high = max(block[0].start, slab.core.start), min(block[0].stop, slab.core.stop)
            if low < high:
                here = slice(low - slab.outer.start, high - slab.outer.start)
                there = slice(low - block[0].start, high - block[0].start)
                kept[:, there] = force[:, here, block[1], block[2]]


def shifted(matrix: Tensor, plane: int) -> Tensor:
    """A (3, 4) matrix for planes that are counted from this one."""
    moved = matrix.clone()
    moved[:, 3] += plane * moved[:, 0]
    return moved


def lifted(displacement: Tensor, source: Grid, target: Grid, ops: Ops) -> Tensor:
    """A displacement on another grid with the same axes, linearly interpolated, in voxels of that grid."""
    if source == target:
        return displacement
    through = np.linalg.solve(source.matrix, target.matrix)
    scale, offset = through.diagonal()[:3].tolist(), through[:3, 3].tolist()
    found = ops.resize(displacement, target.shape, scale, offset)
    for component, factor in zip(found, scale, strict=True):
        component /= factor
    return found


def _in_pairs(values: Tensor, axis: int) -> Tensor:
    """Sums of two neighbours along an axis; the last one is alone if there are an odd number."""
    ahead = (slice(None),) * axis
    sums = values[(*ahead, slice(0, None, 2))].clone()
    odd = values[(*ahead, slice(1, None, 2))]
    sums.narrow(axis, 0, odd.shape[axis]).add_(odd)
    return sums


def _lengths(block: tuple[slice, ...], shape: Sequence[int]) -> list[int]:
    return [min(part.stop, n) - part.start for part, n in zip(block, shape, strict=True)]

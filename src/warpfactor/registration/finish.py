"""From what the stages found to a Registration: inverse, warped image and figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.inversion import invert_everywhere
from warpfactor.geometry.transform import Affine, Chain, Warp
from warpfactor.geometry.velocity import Velocity
from warpfactor.kernels.buffers import give_back_memory
from warpfactor.measure.displacement import residual_figures
from warpfactor.measure.regularity import measure
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.apply import outside_values, resample_channels
from warpfactor.registration.inputs import Images
from warpfactor.registration.resources import peak_memory_mb, versions
from warpfactor.registration.result import Registration, RunInfo
from warpfactor.registration.running import RunContext
from warpfactor.stages.found import Found
from warpfactor.stages.stage import Ending, Stage


@dataclass(frozen=True)
class StageResults:
    """What all stages leave: y = matrix (x + displacement(x)), how they went, where the fixed image shows something.

    The recipe is the given one with what was chosen in it for these images; `warped` is all that the deformable stage
    left, if there was one.
    """

    recipe: Recipe
    matrix: Matrix
    displacement: Tensor | None
    warped: Found | None
    stages: tuple[Stage, ...]
    interrupted: bool
    foreground: Tensor | None
    nonfinite: tuple[int, int]
    missing: tuple[float, float]
    masks: tuple[Tensor | None, Tensor | None]


def finish(images: Images, found: StageResults, run: RunContext, outside: float | None) -> Registration:
    """Inverse, warped image and figures."""
    give_back_memory()
    grid, ops, clock = images.fixed.grid, run.ops, run.clock
    forward = backward = left = None
    if found.displacement is not None:
        forward = found.displacement.to(device=run.device, dtype=torch.float32).contiguous()
        known = None if found.warped is None else found.warped.inverse
        if known is None:
            backward, residual = invert_everywhere(forward, ops)
            left = residual_figures(backward, residual, grid, ops)
            del residual
        else:
            backward = known.to(forward)
    clock.lap("inverse")
    shown_where = found.foreground
    figures = measure(found.matrix, forward, backward, residual=left, grid=grid, foreground=shown_where, ops=ops)
    clock.lap("figures")
    affine = Affine(found.matrix, "fixed", "moving", grid.ndim)
    warp = None if forward is None else Warp(forward.cpu(), grid, "fixed", "fixed")
    inverse_warp = None if backward is None else Warp(backward.cpu(), grid, "fixed", "fixed")
    transform = affine if warp is None else Chain((warp, affine), "fixed", "moving")
    moving = replace(images.moving, data=images.moving.data.to(run.device))
    beyond = outside_values(images.moving, outside)
    warped = resample_channels(transform, moving, grid, outside=beyond, ops=ops)
    clock.lap("warped image")
    return Registration(
        warped=replace(warped, data=warped.data.cpu()),
        affine=affine,
        warp=warp,
        inverse_warp=inverse_warp,
        images=images,
        history=found.stages,
        ending=_ending(found),
        figures=figures,
        recipe=found.recipe,
        halves=None if found.warped is None else found.warped.halves,
        velocity=_velocity(found, grid),
        run=RunInfo(
            device=str(run.device),
            backend=run.backend,
            threads=run.threads,
            ranks=1 if run.crew is None else run.crew.count,
            rank_peaks=() if run.crew is None else run.crew.peaks,
            seed=run.seed,
            seconds=clock.with_total(),
            peak_memory_mb=peak_memory_mb(),
            versions=versions(),
            nonfinite=found.nonfinite,
            missing=found.missing,
            outside=beyond,
            names=(images.fixed.name, images.moving.name),
        ),
    )


def _velocity(found: StageResults, grid: Grid) -> Velocity | None:
    if found.warped is None or found.warped.velocity is None:
        return None
    return Velocity(found.warped.velocity.cpu(), grid, "fixed")


def _ending(found: StageResults) -> Ending:
    if found.interrupted:
        return Ending.INTERRUPTED
    return found.stages[-1].ending if found.stages else Ending.NOTHING

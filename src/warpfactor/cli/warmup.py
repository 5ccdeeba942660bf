"""`warpfactor warmup`: compile all kernels ahead of time, for container images, clusters and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

import warpfactor as wf
from warpfactor.cli.options import Quiet

if TYPE_CHECKING:
    from torch import Tensor

SHAPE = (24, 24, 24)  # large enough for two levels; no axis is downsampled below 16 voxels
# Settings that no recipe uses but that a user may choose.
CHOICES = (
    {"deformable.optimizer": "tile"},
    {"deformable.optimizer": "adam"},
    {"deformable.optimizer": "sgd"},
    {"deformable.metric": "mse", "deformable.optimizer": "demons"},
    {"deformable.metric.window": "gaussian"},
    {"deformable.storage": "int16"},
)
LINEAR_METRICS = ("ncc", "mse", "mi")


def command(quiet: Quiet = False) -> None:
    """Compile all kernels and store them on disk, so that no registration has to wait for them.

    They are stored in the folder of the package if it is writable, so that a container image or a shared installation
    is prepared for all users, and otherwise in the user's cache; NUMBA_CACHE_DIR overrides both.
    """
    from warpfactor.kernels.numba._compile.cache import holdings
    from warpfactor.kernels.numba._compile.compilation import counted
    from warpfactor.registration.ahead import mark_compiled

    if not quiet:
        typer.echo("Running every kernel once on small images. Kernels not yet on disk are compiled (about a minute).")
    last = time.perf_counter()
    with counted() as compiled:
        for name in compile_all():
            began, last = last, time.perf_counter()
            if not quiet:
                typer.echo(f"{name:<26} {last - began:5.1f} s")
    mark_compiled()
    if not quiet:
        typer.echo(f"{compiled.count} kernels were compiled in {compiled.seconds:.0f} s.")
        for folder, count in holdings().items():
            if count:
                typer.echo(f"{count} compiled kernels are stored in {folder}.")


def compile_all() -> Iterator[str]:
    """Run every kernel once on small images, and yield the name of each part when it has finished."""
    for name, part in parts():
        part()
        yield name


def parts() -> list[tuple[str, Callable[[], object]]]:
    """Short registrations and resamplings that together use every kernel, with their names."""
    from warpfactor.registration.plan import MemoryPlan

    half = MemoryPlan(limit_bytes=0, predicted_bytes=0, images="int16", warp="half", slab_planes=8, parts={})
    pair = wf.phantom.phantom(SHAPE, displacement_vox=1.0)
    run = partial(wf.register, pair.fixed.numpy(), pair.moving.numpy())
    masked = partial(run, fixed_mask=pair.mask.numpy(), moving_mask=pair.mask.numpy())
    affine, warp = _short(wf.recipe("affine")), replace(_short(wf.recipe("default")), linear=())
    own = {"deformable.metric": wf.Custom(_squared)}
    planes = [image[SHAPE[0] // 2].numpy() for image in (pair.fixed, pair.moving, pair.mask)]
    slices = partial(wf.register, planes[0], planes[1], fixed_mask=planes[2], moving_mask=planes[2])
    linear = [(f"affine, {m}", partial(run, recipe=affine, overrides={"linear.metric": m})) for m in LINEAR_METRICS]
    recipes = [(recipe.name, partial(masked, recipe=_short(recipe))) for recipe in reversed(wf.recipes().values())]
    choices = [(", ".join(changes.values()), partial(run, recipe=warp, overrides=changes)) for changes in CHOICES]
    return [
        *linear,
        ("resampling", partial(_resample, pair)),
        *recipes,
        ("slices", partial(slices, recipe=_short(wf.recipe("default")))),
        ("custom loss", partial(run, recipe=warp, overrides=own)),
        *choices,
        ("half grid", partial(masked, recipe=_short(wf.recipe("default")), memory=half)),
    ]


def _squared(warped: Tensor, fixed: Tensor) -> Tensor:
    return (warped - fixed).square().mean()


def _short(recipe: wf.Recipe) -> wf.Recipe:
    changes: dict[str, Any] = {}
    if recipe.linear:
        changes |= {"linear.levels": [2], "linear.iterations": [1]}
    if recipe.deformable is not None:
        changes |= {"deformable.levels": [2, 1], "deformable.iterations": [1, 1]}
    return recipe.replace(changes)


def _resample(pair: wf.phantom.Phantom) -> None:
    """Use the kernels of the commands `apply`, `invert`, `compose` and `jacobian`."""
    labels = wf.Image(pair.fixed_labels[None], wf.Grid.from_spacing(SHAPE, 1.0))
    warp = wf.Warp(pair.fixed.new_zeros((3, *SHAPE)), labels.grid)
    for mode in ("label", "nearest", "linear"):
        warp.resample(labels, labels.grid, mode=mode)
    warp.inverse()
    warp.jacobian()
    (warp @ warp).to_warp(labels.grid)

"""`warpfactor warmup`: compile every kernel ahead of time, for container images, clusters and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

import warpfactor as wf
from warpfactor.cli.options import Quiet

if TYPE_CHECKING:
    from torch import Tensor

SHAPE = (16, 16, 16)
# What no recipe uses but a setting can ask for; the metrics are those of the deformable stage.
CHOICES = (
    {"deformable.descent": "tile"},
    {"deformable.descent": "adam"},
    {"deformable.descent": "sgd"},
    {"deformable.metric": "mse", "deformable.descent": "demons"},
    {"deformable.metric.window": "gaussian"},
)
LINEAR_METRICS = ("ncc", "mse", "mi")


def command(quiet: Quiet = False) -> None:
    """Compile all kernels and keep them, so that no registration has to.

    They are kept in the package's own folder if it can be written, so that an image or a shared installation is
    prepared for everybody; else in the user's cache; or where NUMBA_CACHE_DIR says.
    """
    from warpfactor.kernels.cpu.cache import holdings
    from warpfactor.kernels.cpu.compilation import counted

    began = time.perf_counter()
    with counted() as compiled:
        for name in compile_all():
            if not quiet:
                typer.echo(f"{name:<26} {time.perf_counter() - began:5.1f} s")
    if not quiet:
        typer.echo(f"{compiled.count} kernels compiled in {compiled.seconds:.0f} s")
        for folder, count in holdings().items():
            if count:
                typer.echo(f"{count} are kept in {folder}")


def compile_all() -> Iterator[str]:
    """Use every kernel once, on small images; yields the name of each part when it is done."""
    pair = wf.phantom.phantom(SHAPE, displacement_vox=1.0)
    images, mask = (pair.fixed.numpy(), pair.moving.numpy()), pair.mask.numpy()
    for recipe in wf.recipes().values():
        wf.register(*images, recipe=_short(recipe), fixed_mask=mask, moving_mask=mask)
        yield recipe.name
    warp = replace(_short(wf.recipe("default")), linear=())
    for changes in CHOICES:
        wf.register(*images, recipe=warp, overrides=changes)
        yield ", ".join(str(value) for value in changes.values())
    wf.register(*images, recipe=warp, overrides={"deformable.metric": wf.Custom(_squared)})
    yield "a loss of your own"
    affine = _short(wf.recipe("affine"))
    for metric in LINEAR_METRICS:
        wf.register(*images, recipe=affine, overrides={"linear.metric": metric})
        yield f"affine, {metric}"
    _carry_along(pair)
    yield "resampling"


def _squared(warped: Tensor, fixed: Tensor) -> Tensor:
    return (warped - fixed).square().mean()


def _short(recipe: wf.Recipe) -> wf.Recipe:
    changes: dict[str, Any] = {}
    if recipe.linear:
        changes |= {"linear.levels": [2], "linear.iterations": [1]}
    if recipe.deformable is not None:
        changes |= {"deformable.levels": [2, 1], "deformable.iterations": [1, 1]}
    return recipe.replace(changes)


def _carry_along(pair: wf.phantom.Phantom) -> None:
    """What `apply`, `invert`, `compose` and `jacobian` use."""
    labels = wf.Image(pair.fixed_labels[None], wf.Grid.from_spacing(SHAPE, 1.0))
    warp = wf.Warp(pair.fixed.new_zeros((3, *SHAPE)), labels.grid)
    for mode in ("label", "nearest", "linear"):
        warp.resample(labels, labels.grid, mode=mode)
    warp.inverse()
    warp.jacobian()
    (warp @ warp).to_warp(labels.grid)

"""`warpfactor info`, for bug reports, and `warpfactor warmup`, which compiles the kernels ahead of time."""

from __future__ import annotations

import os
import time
from typing import Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.options import Json, Quiet

SHAPE = (16, 16, 16)


def info(as_json: Json = False) -> None:
    """Versions, backends, threads and devices: what a bug report needs."""
    import numba
    import torch

    from warpfactor.register.resources import versions

    found: dict[str, Any] = {
        **versions(),
        "backends": ", ".join(wf.kernels.BACKENDS),
        "backend on the cpu": wf.kernels.name_of(wf.kernels.select("cpu")),
        "kernels compiled": show.kernels_are_compiled(),
        "processors": os.cpu_count(),
        "threads": numba.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    if as_json:
        show.print_json(found)
    else:
        width = max(len(name) for name in found)
        typer.echo("\n".join(f"{name:<{width}}  {value}" for name, value in found.items()))


def warmup(quiet: Quiet = False) -> None:
    """Compile the kernels and keep them, so that the first registration does not have to."""
    began = time.perf_counter()
    pair = wf.phantom.phantom(SHAPE, displacement_vox=1.0)
    fixed, moving, mask = pair.fixed.numpy(), pair.moving.numpy(), pair.mask.numpy()
    for recipe in wf.recipes().values():
        changes: dict[str, Any] = {}
        if recipe.linear:
            changes |= {"linear.levels": [2], "linear.iterations": [1]}
        if recipe.deformable is not None:
            changes |= {"deformable.levels": [2, 1], "deformable.iterations": [1, 1]}
        wf.register(fixed, moving, recipe=recipe, overrides=changes, fixed_mask=mask, moving_mask=mask)
        if not quiet:
            typer.echo(f"{recipe.name:<11} {time.perf_counter() - began:.1f} s")
    if not quiet:
        typer.echo("the kernels are compiled")

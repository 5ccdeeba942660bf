"""`warpfactor info`: what a bug report needs."""

from __future__ import annotations

import os
from typing import Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.options import Json


def info(as_json: Json = False) -> None:
    """Versions, backends, threads and devices: what a bug report needs."""
    import numba
    import torch

    from warpfactor.kernels.numba._compile.cache import holdings
    from warpfactor.registration.resources import versions

    kept = ", ".join(f"{count} in {folder}" for folder, count in holdings().items() if count)
    found: dict[str, Any] = {
        **versions(),
        "backends": ", ".join(wf.kernels.BACKENDS),
        "backend on the cpu": wf.kernels.choose().name,
        "compiled kernels": kept or "none",
        "processors": os.cpu_count(),
        "threads": numba.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    if as_json:
        show.print_json(found)
    else:
        width = max(len(name) for name in found)
        typer.echo("\n".join(f"{name:<{width}}  {value}" for name, value in found.items()))

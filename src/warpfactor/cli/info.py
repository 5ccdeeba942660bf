"""`warpfactor info`: versions and hardware, for bug reports."""

from __future__ import annotations

import os
from typing import Any

import typer

import warpfactor as wf
from warpfactor.cli import terminal
from warpfactor.cli.options import Json


def command(as_json: Json = False) -> None:
    """Print versions, backends, threads and devices, as a bug report needs them."""
    import numba
    import torch

    from warpfactor.kernels.numba._compile.cache import holdings
    from warpfactor.registration.resources import versions

    stored = ", ".join(f"{count} in {folder}" for folder, count in holdings().items() if count)
    found: dict[str, Any] = {
        **versions(),
        "backends": ", ".join(wf.kernels.BACKENDS),
        "backend on the CPU": wf.kernels.choose().name,
        "compiled kernels": stored or "none",
        "processors": os.cpu_count(),
        "threads": numba.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    if as_json:
        terminal.print_json(found)
    else:
        width = max(len(name) for name in found)
        typer.echo("\n".join(f"{name:<{width}}  {value}" for name, value in found.items()))

"""`warpfactor info`: versions and hardware, for bug reports; and the check of a device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import warpfactor as wf
from warpfactor.cli import terminal
from warpfactor.cli.options import Json, Threads
from warpfactor.errors import InputError

if TYPE_CHECKING:
    import torch

    from warpfactor.checks.device.check import BackendCheck
    from warpfactor.kernels import Backend, Ops

FAILED = 1  # exit code of a device that is absent or did not pass
DIFFERENT = "Some kernels differ from the reference on this device. Do not rely on them, and please send us this page."

CheckDevice = Annotated[
    str | None,
    typer.Option(
        "--check-device",
        metavar="NAME",
        help="Check every kernel of a device (cpu, cuda, mps) against the reference, and time it.",
    ),
]


def command(check_device: CheckDevice = None, threads: Threads = None, as_json: Json = False) -> None:
    """Print versions, backends, threads and devices, as a bug report needs them.

    With --check-device, check the kernels of a device instead and print one page. A check that has passed is kept in
    the user's cache; until then runs on that device say that they are experimental.
    """
    if check_device is not None:
        _check(check_device, as_json)
        return
    found = _facts()
    if as_json:
        terminal.print_json(found)
    else:
        width = max(len(name) for name in found)
        typer.echo("\n".join(f"{name:<{width}}  {value}" for name, value in found.items()))


def _facts() -> dict[str, Any]:
    import numba
    import torch

    from warpfactor.kernels.numba._compile.cache import holdings
    from warpfactor.registration.resources import versions

    stored = ", ".join(f"{count} in {folder}" for folder, count in holdings().items() if count)
    return {
        **versions(),
        "backends": ", ".join(wf.kernels.BACKENDS),
        "backend on the CPU": wf.kernels.choose().name,
        "compiled kernels": stored or "none",
        "processors": os.cpu_count(),
        "threads": numba.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "mps": "available" if torch.backends.mps.is_available() else "none",
    }


def _check(name: str, as_json: bool) -> None:
    """Check all backends of a device, print the page, and keep what passed."""
    from warpfactor.checks.device.check import check_backend
    from warpfactor.checks.device.record import device_title, keep, record_path
    from warpfactor.registration.resources import checked_device, versions
    from warpfactor.show.device import device_page

    try:
        device = checked_device(name)
    except InputError as error:
        _fail(str(error))
    typer.echo(f"Checking every kernel on {device}, which takes about a minute.", err=True)
    checks = [check_backend(each.name, ops, device, half=each.half) for each, ops in _backends(device)]
    if as_json:
        for each in checks:
            terminal.print_json(_entry(each))
    else:
        typer.echo(device_page(device_title(device), versions(), checks))
    kept = [keep(device, each.backend) for each in checks if each.passed]
    if len(kept) < len(checks):
        _fail(DIFFERENT)
    if not as_json:
        typer.echo(f"\nPassed, which is kept in {record_path()}." if all(kept) else "\nPassed.")


def _backends(device: torch.device) -> Iterator[tuple[Backend, Ops]]:
    """The backends that run on a device and can be loaded; on the CPU the reference is what they are compared with."""
    for backend in wf.kernels.BACKENDS.values():
        if backend.runs_on(device) and (backend.name, device.type) != ("reference", "cpu"):
            try:
                yield backend, backend.load()
            except ImportError as error:
                typer.echo(f"Backend {backend.name!r} is not checked, it cannot be loaded here ({error}).", err=True)


def _entry(check: BackendCheck) -> dict[str, Any]:
    return {
        "backend": check.backend,
        "device": check.device,
        "passed": check.passed,
        "bandwidth_gb_per_s": check.bandwidth / 1e9,
        "checks": [
            {
                "problem": each.problem.title,
                "shapes": each.shapes,
                "images": each.images,
                "error": each.error,
                "trouble": each.trouble,
            }
            for each in check.checks
        ],
        "milliseconds": {each.operation: 1e3 * each.seconds for each in check.times},
    }


def _fail(message: str) -> NoReturn:
    typer.echo(f"warpfactor: {message}", err=True)
    raise typer.Exit(FAILED)

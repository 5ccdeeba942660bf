"""What people and programs see while a registration runs: a live line, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

import warpfactor as wf

if TYPE_CHECKING:
    from warpfactor.register.stages import Progress as Callback
    from warpfactor.register.stages import Stage, Update

WIDE = 160  # columns of a table that no terminal limits
COMPILE_SECONDS = 60  # of two cores, Numba 0.68


@contextmanager
def progress(*, quiet: bool, as_json: bool) -> Iterator[Callback | None]:
    """What to give to `register` as its progress, for the time of a block."""
    if as_json:
        yield lambda update: print_json({"event": "iteration", **dataclasses.asdict(update)})
    elif quiet:
        yield None
    elif sys.stderr.isatty():
        with _live() as callback:
            yield callback
    else:
        lines = _Lines()
        yield lines
        lines.close()


def announce_compilation(*, quiet: bool) -> None:
    """Say that the first run compiles, if it does."""
    if not quiet and not kernels_are_compiled():
        typer.echo(f"compiling the kernels, once, about {COMPILE_SECONDS} s", err=True)


def kernels_are_compiled() -> bool:
    """Whether Numba's cache is younger than every kernel."""
    from warpfactor.kernels import cpu

    sources = [path.stat().st_mtime for path in Path(cpu.__file__).parent.glob("*.py")]
    cached = [path.stat().st_mtime for folder in _cache_folders() for path in Path(folder).glob("*.nbi")]
    return bool(cached) and max(cached) > max(sources)


def _cache_folders() -> set[str]:
    """Where Numba keeps the compiled kernels: beside them, or in the user's cache if that is not writable."""
    modules = [module for name, module in sys.modules.items() if name.startswith("warpfactor.kernels.cpu.")]
    kernels = [value for module in modules for value in vars(module).values() if hasattr(value, "stats")]
    return {kernel.stats.cache_path for kernel in kernels if kernel.stats.cache_path}


def print_json(entry: dict[str, Any]) -> None:
    from warpfactor.register.result import without_nan

    typer.echo(json.dumps(without_nan(entry), allow_nan=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text, as wide as it needs to be unless a terminal limits it."""
    made = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    width = Console().width if sys.stdout.isatty() else WIDE
    stream = io.StringIO()
    Console(width=width, file=stream).print(made, markup=False, highlight=False)
    return stream.getvalue()


def summary(registration: wf.Registration, output: Path, labels: Mapping[str, Any] | None = None) -> str:
    """A few lines that a person understands.

    Args:
        output: folder of the result.
        labels: their scores, if there are any.
    """
    costs = "; ".join(_costs(stage) for stage in registration.history)
    lines = [f"Likeness  {costs} (lower is better)"] if costs else []
    warp = registration.figures.warp
    if warp is not None:
        moved, jacobian, back = warp.displacement_mm, warp.jacobian, warp.there_and_back_vox
        lines += [
            f"Warp      {moved.max:.1f} mm at most, {moved.mean:.1f} mm on average; "
            f"SD of log Jacobian {jacobian.sd_log:.2f}; {jacobian.folded_count} folded voxels",
            f"Inverse   error {back.mean:.3f} voxels on average, {back.p95:.3f} at the 95th percentile",
        ]
    if labels:
        lines.append(f"Labels    mean Dice {labels['dice_mean_before']:.3f} -> {labels['dice_mean_after']:.3f}")
    nonfinite = sum(registration.run.nonfinite)
    if nonfinite:
        lines.append(f"Ignored   {nonfinite} voxels were NaN or infinite and did not count")
    lines.append(f"Written   to {output} after {registration.run.seconds['total']:.1f} s")
    return "\n".join([*lines, registration.status])


def _costs(stage: Stage) -> str:
    """What a stage did to its cost."""
    before = f"{stage.cost_before:.2f}" if math.isfinite(stage.cost_before) else "no overlap"
    kept = "" if stage.kept else ", left out"
    return f"{stage.name} {stage.metric.upper()} cost {before} -> {stage.cost_after:.2f}{kept}"


@contextmanager
def _live() -> Iterator[Callback]:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=1.0)

        def show(update: Update) -> None:
            bar.update(task, description=_sentence(update) + _time_left(update), completed=update.done)

        yield show


class _Lines:
    """One line at the end of every level."""

    def __init__(self) -> None:
        self._last: Update | None = None

    def __call__(self, update: Update) -> None:
        if self._last is not None and (self._last.stage, self._last.level) != (update.stage, update.level):
            self.close()
        self._last = update

    def close(self) -> None:
        if self._last is not None:
            typer.echo(_sentence(self._last), err=True)


def _sentence(update: Update) -> str:
    place = f"level {update.level:g}, {update.iteration + 1} of {update.limit}"
    return f"{update.stage:<11} {place:<22} cost {update.cost:.4f}"


def _time_left(update: Update) -> str:
    if update.stage != "deformable" or not 0 < update.done < 1:
        return ""
    return f"  {update.seconds * (1 - update.done) / update.done:.0f} s left"

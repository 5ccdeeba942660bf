"""What people and programs see of a registration: while it runs, and at its end."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import warpfactor as wf
from warpfactor.cli import live
from warpfactor.cli.live import View

if TYPE_CHECKING:
    from warpfactor.stages.stage import Progress as Callback
    from warpfactor.stages.stage import Stage

WIDE = 160  # columns of a table that no terminal limits
COLUMN = 10  # where the text of a summary begins
COMPILE_SECONDS = 30  # by one process, with Numba 0.68; two processes need 20


@contextmanager
def progress(*, quiet: bool, as_json: bool) -> Iterator[View]:
    """What shows a registration for the time of a block; give its `callback` to `register`."""
    if as_json:
        yield _Told(lambda update: print_json({"event": "iteration", **dataclasses.asdict(update)}))
    elif quiet:
        yield _Told(None)
    elif sys.stderr.isatty():
        with live.screen(Console(stderr=True)) as view:
            announce_compilation(quiet=False, tell=view.tell)  # a line of its own would break the view
            yield view
    else:
        lines = live.Lines()
        yield lines
        lines.close()


@dataclass(frozen=True)
class _Told:
    """A view for programs, or for nobody."""

    callback: Callback | None

    def phase(self, text: str) -> None:
        """Programs are told of iterations and of the result."""

    def note(self, text: str) -> None:
        """Programs know what they sent."""


def announce_compilation(*, quiet: bool, tell: Callable[[str], None] | None = None) -> None:
    """Have it said when kernels are compiled, should it come to that; on stderr, or by `tell`."""
    from warpfactor.kernels.numba._compile.compilation import tell_once

    say = tell or partial(typer.echo, err=True)
    tell_once(None if quiet else lambda: say(_compilation()))


def _compilation() -> str:
    """What is compiled: everything, or what no run before has used."""
    from warpfactor.kernels.numba._compile.cache import holdings

    if any(holdings().values()):
        return "compiling kernels that are used for the first time, some seconds"
    return f"compiling the kernels, once, about {COMPILE_SECONDS} s"


def print_json(entry: dict[str, Any]) -> None:
    from warpfactor.io.jsontext import without_nan

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


def summary(registration: wf.Registration, output: Path, scores: Mapping[str, Any], seconds: float) -> str:
    """Five lines that a person understands, and one more for each thing that not every run has.

    Args:
        output: folder of the result.
        scores: of labels and landmarks, as in result.json.
        seconds: the whole run took.
    """
    verdict = scores.get("verdict")
    entries = [
        ("Affine", _affine(registration)),
        ("Likeness", _likeness(registration)),
        ("Warp", _warp(registration)),
        ("Labels", _labels(scores.get("labels"))),
        ("Landmarks", _landmarks(scores.get("landmarks"))),
        ("Ignored", _ignored(registration)),
        *(("Warning", text) for text in registration.warnings if not verdict),  # it has them as reasons
        ("Written", f"to {output} after {_time(seconds)}{_bare(registration)}{_memory(registration)}"),
        ("Status", registration.status),
        *(("" if number else "Verdict", line) for number, line in enumerate(verdict_lines(verdict) if verdict else ())),
    ]
    return "\n".join(_entry(name, text) for name, text in entries if text)


def verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The headline of the report, and a line with reason and advice for whatever is not known to be right."""
    levels = ("red", "amber", "grey")
    problems = [check for level in levels for check in verdict["checks"] if check["level"] == level]
    return [f"{verdict['headline']}.", *(f"- {check['reason']} {check['advice']}".rstrip() for check in problems)]


def _entry(name: str, text: str) -> str:
    """A name and what belongs to it; on a terminal that is too narrow, on several lines."""
    line = f"{name:<{COLUMN}}{text}"
    if not sys.stdout.isatty():
        return line
    return textwrap.fill(line, Console().width, subsequent_indent=" " * COLUMN, break_long_words=False)


def _affine(registration: wf.Registration) -> str:
    """What the affine does: turn, shift of the fixed image's centre, change of volume."""
    from warpfactor.checks.alignment import rotation_degrees

    matrix, grid = registration.affine.matrix, registration.fixed_grid
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])
    shift = float(np.linalg.norm(registration.affine.map_points(centre) - centre))
    volume = registration.figures.affine_determinant
    return (
        f"turns by {live.number(rotation_degrees(matrix), 1)} degrees, shifts the centre by {live.number(shift, 1)} mm, "
        f"scales volumes by {volume:.2f}"
    )


def _likeness(registration: wf.Registration) -> str:
    costs = "; ".join(_costs(stage) for stage in registration.history)
    apart = ", each at its own level" if len(registration.history) > 1 else ""
    return f"{costs} (lower is better{apart})" if costs else ""


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else live.duration(seconds)


def _bare(registration: wf.Registration) -> str:
    """The time that the report gives: it is made before all is written."""
    from warpfactor.checks.case import registration_seconds

    return f" (registration {_time(registration_seconds(registration.run.seconds))})"


def _costs(stage: Stage) -> str:
    """What a stage did to its cost."""
    kept = "" if stage.kept else ", left out"
    return f"{stage.name} {stage.metric.upper()} cost {stage.change(2)} at level {stage.level:g}{kept}"


def _warp(registration: wf.Registration) -> str:
    warp = registration.figures.warp
    if warp is None:
        return "none; the transform is linear"
    moved, folded, back = warp.displacement_mm, warp.jacobian.folded_count, warp.there_and_back_vox
    folds = f"{folded} folded voxel{'s' if folded > 1 else ''}" if folded else "no folds"
    return (
        f"{moved.mean:.1f} mm on average, {moved.max:.1f} mm at most; {folds}; SD of log Jacobian "
        f"{warp.jacobian_foreground.sd_log:.2f} in the object; inverse off by {back.mean:.3f} voxels on average, "
        f"{back.max:.2g} at most"
    )


def _labels(scores: Mapping[str, Any] | None) -> str:
    if not scores:
        return ""
    return f"mean Dice {scores['dice_mean_before']:.3f} -> {scores['dice_mean_after']:.3f}"


def _landmarks(scores: Mapping[str, Any] | None) -> str:
    if not scores:
        return ""
    before, after = scores["before_mm"], scores["after_mm"]
    change = ", ".join(f"{name} {before[name]:.2f} -> {after[name]:.2f} mm" for name in ("mean", "median", "max"))
    return f"{change} ({scores['count']} points)"


def _ignored(registration: wf.Registration) -> str:
    count = sum(registration.run.nonfinite)
    return f"{count} voxels were NaN or infinite and did not count" if count else ""


def _memory(registration: wf.Registration) -> str:
    peak = registration.run.peak_memory_mb
    return "" if peak is None else f", with {peak / 1024:.1f} GB of memory at most"

"""The sentences of the command line: messages of a run, its summary, and advice that names options."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import warpfactor as wf
    from warpfactor.stages.stage import Stage

COMPILING_ALL = "Compiling the kernels for the first run (about {seconds} s); later runs load them from disk."
COMPILING_SOME = "Compiling kernels that are used for the first time (a few seconds)."
STARTING, FINISHING = "preparing the images, trying initialisations", "computing the inverse and quality measures"
WRITING, WRITING_REPORT = "writing the result", "writing the result and its report"
STOPPING = "Stopping after this iteration, then writing the best result so far. Press Ctrl-C again to end at once."
COMPLETE = "The registration was complete when the signal arrived; the whole result was written."
INTERRUPTED = "Interrupted; nothing was written."
TERMINATED = "Terminated; nothing was written."
LESS_MEMORY = "crop the images to the region of interest, or resample them to a coarser spacing"
OUR_ERROR = "This is an error of warpfactor; please report it with the output of `warpfactor info`."

MICROSCOPIC_MM = 0.03  # voxels smaller than this have lengths in micrometres
COLUMN = 10  # where the text of a summary line begins


def number(value: float, digits: int) -> str:
    """A number with so many digits after the point, and no minus sign before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def unit_of(grid: wf.Grid) -> tuple[float, str]:
    """Factor from millimetres to the unit in which lengths of an image are told, and its name."""
    finest = min(s for s, n in zip(grid.spacing_mm, grid.shape, strict=True) if n > 1)
    return (1000.0, "um") if finest < MICROSCOPIC_MM else (1.0, "mm")


def duration(seconds: float) -> str:
    """Seconds as people say them: "8 s", "2 min 5 s"."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def count(amount: int, noun: str) -> str:
    """A number with its noun: "1 point", "2 points"."""
    return f"{amount} {noun}{'' if amount == 1 else 's'}"


def one_line(text: object) -> str:
    """A message without line breaks."""
    return " ".join(str(text).split())


def summary(found: wf.Registration, entries: Mapping[str, Any], output: Path, seconds: float) -> str:
    """What a registration found, in a few lines.

    Args:
        found: the registration.
        entries: its result.json.
        output: folder of the result.
        seconds: duration of the whole command.
    """
    verdict = entries.get("verdict")
    lines = [
        ("Affine", _affine(found)),
        ("Cost", _costs(found)),
        ("Warp", _warp(found)),
        ("Labels", _labels(entries.get("labels"))),
        ("Landmarks", _landmarks(entries.get("landmarks"), *unit_of(found.fixed_grid))),
        ("Ignored", _ignored(found)),
        ("Memory", _memory(entries.get("memory"))),
        *(("Warning", text) for text in entries["warnings"] if not verdict),  # the verdict repeats them
        ("Output", _output(entries, output, seconds)),
        ("Status", entries["status"]),
        *(("" if i else "Verdict", line) for i, line in enumerate(verdict_lines(verdict) if verdict else ())),
    ]
    return "\n".join(_line(name, text) for name, text in lines if text)


def verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The headline of a report, then every check that is not green with its reason and advice, worst first."""
    levels = ("red", "amber", "grey")
    problems = [check for level in levels for check in verdict["checks"] if check["level"] == level]
    return [f"{verdict['headline']}.", *(f"- {check['reason']} {check['advice']}".rstrip() for check in problems)]


def _line(name: str, text: str) -> str:
    """A name and its text, wrapped to the width of the terminal if stdout is one."""
    line = f"{name:<{COLUMN}}{text}"
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent=" " * COLUMN, break_long_words=False)


def _affine(found: wf.Registration) -> str:
    import numpy as np

    from warpfactor.checks.alignment import rotation_degrees

    grid, rotation = found.fixed_grid, rotation_degrees(found.affine.matrix)
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])
    shift = float(np.linalg.norm(found.affine.map_points(centre) - centre))
    factor, unit = unit_of(grid)
    return (
        f"rotation by {number(rotation, 1)} degrees, translation of the centre by {number(factor * shift, 1)} {unit}, "
        f"volumes scaled by {found.figures.affine_determinant:.2f}"
    )


def _costs(found: wf.Registration) -> str:
    costs = "; ".join(_stage(stage) for stage in found.history)
    apart = "; stages cannot be compared with each other" if len(found.history) > 1 else ""
    return f"{costs} (lower is better{apart})" if costs else ""


def _stage(stage: Stage) -> str:
    from warpfactor.show.wording import metric_title

    kept = "" if stage.kept else ", result not used"
    return f"{stage.name} {metric_title(stage.metric)} {stage.change(2)} at level {stage.level:g}{kept}"


def _warp(found: wf.Registration) -> str:
    warp = found.figures.warp
    if warp is None:
        return "none; the transform is linear"
    moved, folded, back = warp.displacement_mm, warp.jacobian.folded_count, warp.there_and_back_vox
    spread, shear = warp.jacobian_foreground.sd_log, warp.distortion_foreground.shear
    folds = count(folded, "folded voxel") if folded else "no folds"
    factor, unit = unit_of(found.fixed_grid)
    return (
        f"displacement {factor * moved.mean:.1f} {unit} on average, {factor * moved.max:.1f} {unit} at most; {folds}; "
        f"SD of log Jacobian {spread:.2f} and shear {shear:.2f} in the foreground; "
        f"inverse error {back.mean:.3f} voxels on average, {back.max:.2g} at most"
    )


def _labels(scores: Mapping[str, Any] | None) -> str:
    if not scores:
        return ""
    return f"mean Dice {scores['dice_mean_before']:.3f} -> {scores['dice_mean_after']:.3f}"


def _landmarks(scores: Mapping[str, Any] | None, factor: float, unit: str) -> str:
    if not scores:
        return ""
    names = ("mean", "median", "max")
    pairs = {name: [factor * scores[side][name] for side in ("before_mm", "after_mm")] for name in names}
    change = ", ".join(f"{name} {before:.2f} -> {after:.2f} {unit}" for name, (before, after) in pairs.items())
    return f"error {change} ({count(scores['count'], 'landmark')})"


def _ignored(found: wf.Registration) -> str:
    voxels = sum(found.run.nonfinite)
    return f"{count(voxels, 'voxel')} with a value of NaN or infinity" if voxels else ""


def _memory(plan: Mapping[str, Any] | None) -> str:
    from warpfactor.memory import shown_bytes

    if plan is None or plan["peak_bytes"] is None:
        return ""
    peak, foreseen, limit = (shown_bytes(plan[name]) for name in ("peak_bytes", "predicted_bytes", "limit_bytes"))
    return f"peak {peak}, predicted {foreseen}, limit {limit}{'' if plan['held'] else ': the limit was exceeded'}"


def _output(entries: Mapping[str, Any], output: Path, seconds: float) -> str:
    from warpfactor.checks.case import registration_seconds
    from warpfactor.memory import shown_bytes

    peak = entries["peak_memory_mb"]
    memory = "" if peak is None else f"; peak memory {shown_bytes(peak * (1 << 20))}"
    return f"{output} after {_time(seconds)} (registration {_time(registration_seconds(entries['seconds']))}){memory}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)

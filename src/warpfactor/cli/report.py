"""`warpfactor report`: make the report of a result folder again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.options import Json, Quiet, Threads
from warpfactor.errors import FileError, InputError

if TYPE_CHECKING:
    from warpfactor.checks.verdict import Verdict


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Result folders written by `register`.")],
    fixed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fixed image, if it is no longer at its original path.")
    ] = None,
    moving: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Moving image, if it is no longer at its original path.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a report even if images that it shows are missing now.")
    ] = False,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make report.html of result folders again, update the verdict in result.json, and print it."""
    if len(folders) > 1 and (fixed is not None or moving is not None):
        raise InputError("--fixed and --moving belong to one result; give one folder with them.")
    failed = 0
    for folder in folders:
        try:
            verdict = _refresh(folder, fixed, moving, force=force)
        except Exception as error:  # one failure must not stop the other folders
            if len(folders) == 1:
                raise
            typer.echo(f"warpfactor: {wording.report_failure(folder, error)}", err=True)
            failed += 1
            continue
        path = str(folder / wf.report.REPORT)
        if as_json:
            terminal.print_json({"event": "report", "report": path, "verdict": verdict.to_dict()})
        elif not quiet:
            typer.echo("\n".join([path, *wording.verdict_lines(verdict.to_dict())]))
    if failed:
        raise FileError(f"{failed} of {len(folders)} reports could not be made.")


def _refresh(folder: Path, fixed: Path | None, moving: Path | None, *, force: bool) -> Verdict:
    try:
        return wf.report.refresh(folder, fixed=fixed, moving=moving, force=force).verdict
    except FileError as error:
        raise _other_grid(folder, fixed=fixed, moving=moving) or error from error


def _other_grid(folder: Path, **given: Path | None) -> FileError | None:
    """The error for a given image whose grid differs from that of the result; None if there is none."""
    from warpfactor.registration.folder import read_entries
    from warpfactor.registration.result import grid_from_dict

    for side, path in given.items():
        if path is None or not path.exists():
            continue
        own, grid = wf.read_image(path).grid, grid_from_dict(read_entries(folder)[side])
        if not own.same_space(grid):
            text = f"{path}: is not the {side} image of {folder}: it has {own.summary}, the result {grid.summary}"
            hint = "; if its spacing was given in Python, make the report there with wf.report.build"
            return FileError(f"{text}{hint if own.shape == grid.shape else ''}.")
    return None

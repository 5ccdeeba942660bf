"""`warpfactor report`: make the report of a result folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal, wording
from warpfactor.cli.options import Json, Quiet, Threads
from warpfactor.errors import FileError, InputError


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
            verdict = wf.report.refresh(folder, fixed=fixed, moving=moving, force=force).verdict
        except Exception as error:  # one failure must not stop the other folders
            if len(folders) == 1:
                raise
            typer.echo(f"warpfactor: {wf.report.failure(folder, error)}", err=True)
            failed += 1
            continue
        path = str(folder / wf.report.REPORT)
        if as_json:
            terminal.print_json({"event": "report", "report": path, "verdict": verdict.to_dict()})
        elif not quiet:
            typer.echo("\n".join([path, *wording.verdict_lines(verdict.to_dict())]))
    if failed:
        raise FileError(f"{failed} of {len(folders)} reports could not be made.")

"""`warpfactor summary`: one page about many results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli import wording
from warpfactor.cli.options import Force, Quiet

OUTPUT = Path("summary.html")
LEVELS = ("red", "amber", "green")


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Result folders written by `register`, or folders that contain some."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Page to write.")] = OUTPUT,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make all reports again first.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Summarise many results on one page: a sortable table, worst results first, with links to the reports."""
    tell = None if quiet else partial(typer.echo, err=True)
    rows = wf.report.summarise(folders, output, rebuild=rebuild, force=force, tell=tell)
    if not quiet:
        counts = ", ".join(f"{sum(row.level == level for row in rows)} {level}" for level in LEVELS)
        typer.echo(f"{output}: {wording.count(len(rows), 'result')}, {counts}")

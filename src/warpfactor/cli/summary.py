"""`warpfactor summary`: one page about many results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli import wording
from warpfactor.cli.options import Force, Quiet
from warpfactor.errors import WarpfactorError

if TYPE_CHECKING:
    from warpfactor.show.report.summary import Row

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
    from warpfactor.show.report.summary import find_results, render_summary

    wf.io.check_free(output, force=force)
    rows = [_row(place, rebuild=rebuild, quiet=quiet) for place in find_results(folders)]
    with wf.io.atomic_path(output, force=force) as temporary:
        temporary.write_text(render_summary(rows, output), encoding="utf-8")
    if not quiet:
        counts = ", ".join(f"{sum(row.level == level for row in rows)} {level}" for level in LEVELS)
        typer.echo(f"{output}: {wording.count(len(rows), 'result')}, {counts}")


def _row(folder: Path, *, rebuild: bool, quiet: bool) -> Row:
    """The row of a result; its report is made if it is missing."""
    from warpfactor.registration.folder import read_entries
    from warpfactor.show.report.summary import Row, read_facts, unreadable

    try:
        read_entries(folder)
    except WarpfactorError as error:
        return unreadable(folder, str(error))
    facts = None if rebuild else read_facts(folder)
    if facts is None:
        if not quiet:
            typer.echo(f"Making the report of {folder}", err=True)
        try:
            wf.report.refresh(folder)
        except wf.report.PoorerError as error:
            typer.echo(f"warpfactor: {error}", err=True)
        except Exception as error:  # one failure must not lose the rows of the other results
            return unreadable(folder, wording.report_failure(folder, error))
        facts = read_facts(folder)
    return unreadable(folder, "Its report cannot be read.") if facts is None else Row(folder, facts)

"""`warpfactor summary`: one page over many results, what stands out first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import warpfactor as wf
from warpfactor.cli.options import Force, Quiet
from warpfactor.cli.report import failure
from warpfactor.errors import WarpfactorError

if TYPE_CHECKING:
    from warpfactor.show.report.summary import Row

OUTPUT = Path("summary.html")


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Folders that `register` wrote, or that hold such."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Page to write.")] = OUTPUT,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make every report again first.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Put many results on one page: sortable, outliers first, with links to their reports."""
    from warpfactor.show.report.summary import find_results, render_summary

    wf.io.check_free(output, force=force)
    places = find_results(folders)
    rows = [_row(place, rebuild=rebuild, quiet=quiet) for place in places]
    with wf.io.atomic_path(output, force=force) as temporary:
        temporary.write_text(render_summary(rows, output), encoding="utf-8")
    if not quiet:
        counts = ", ".join(f"{sum(row.level == level for row in rows)} {level}" for level in ("red", "amber", "green"))
        typer.echo(f"{output}: {len(rows)} {'result' if len(rows) == 1 else 'results'}, {counts}")


def _row(folder: Path, *, rebuild: bool, quiet: bool) -> Row:
    """What the report of a result says; it is made if it is missing, and worth nothing if the result is damaged."""
    from warpfactor.registration.folder import read_entries
    from warpfactor.show.report.summary import Row, read_facts, unreadable

    try:
        read_entries(folder)
    except WarpfactorError as error:
        return unreadable(folder, str(error))
    facts = None if rebuild else read_facts(folder)
    if facts is None:
        if not quiet:
            typer.echo(f"making the report of {folder}", err=True)
        try:
            wf.report.refresh(folder)
        except wf.report.PoorerError as error:
            typer.echo(f"warpfactor: {error}", err=True)
        except Exception as error:  # whatever it is, the other results have their rows
            return unreadable(folder, failure(folder, error))
        facts = read_facts(folder)
    return unreadable(folder, "Its report cannot be read.") if facts is None else Row(folder, facts)

"""`warpfactor bench verdicts`: how often the verdict on a result is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpfactor.cli.options import Quiet
from warpfactor.errors import InputError


def command(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the results and tables.", show_default=False),
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of real images, one folder per kind (default: phantoms only)."),
    ] = None,
    part: Annotated[
        str, typer.Option(metavar="I/N", help="Make one of N parts only, for several processes: 1/4 to 4/4.")
    ] = "1/1",
    half: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Make one half of the set only: 1 or 2 (default: both).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make good and failing results of many kinds, and count how often their verdicts are wrong.

    It registers small pairs with a known truth, spoils the results, and judges all of them. It writes one line per
    result into results.jsonl, and the rates with their intervals into verdicts.md and CSV files; a run that was stopped
    is continued. Example: warpfactor bench verdicts -o results
    """
    from warpfactor.bench.score.tables import to_markdown, write_tables
    from warpfactor.bench.verdicts.rates import rate_tables
    from warpfactor.bench.verdicts.run import run_trials

    if data is not None and not data.is_dir():
        raise InputError(f"{data}: is not a folder; give the folder of real images, or leave --data out.")
    if half not in (None, 1, 2):
        raise InputError(f"--half {half} cannot be used; give 1 or 2, or leave it out.")
    records = run_trials(output, data, part=_part(part), half=half, tell=None if quiet else typer.echo)
    tables = rate_tables(records)
    write_tables(tables, output, "verdicts")
    for table in tables:
        typer.echo(to_markdown(table))


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise InputError(f"--part {text} cannot be used; give a number and a count, such as 1/4.")
    return int(number) - 1, int(count)

"""`warpfactor datasets`: how to lay out data for the benchmarks, a check of yours, and an example to try."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from warpfactor.cli.options import Force


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="LUMIR, OASIS, NLST or AbdomenMRCT; all without.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check a table, a Learn2Reg .json or its folder.")
    ] = None,
    example: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a few phantoms and their table, to try.")
    ] = None,
    force: Force = False,
) -> None:
    """How to lay out a dataset for `warpfactor bench`, the four of the paper among them, and the command for each."""
    if check is not None:
        _check(check)
    elif example is not None:
        _example(example, force=force)
    else:
        _explain(name)


def _explain(name: str | None) -> None:
    from warpfactor.bench.data.layouts import LAYOUTS, TABLE_HELP, text
    from warpfactor.recipebook.plain import unknown

    known = {layout.name: layout for layout in LAYOUTS}
    folded = {each.lower(): layout for each, layout in known.items()}
    if name is not None:
        if name.lower() not in folded:
            raise unknown("dataset", name, known)
        typer.echo(text(folded[name.lower()]), nl=False)
        return
    typer.echo(TABLE_HELP)
    for layout in LAYOUTS:
        typer.echo(text(layout))
    typer.echo("Check yours with `warpfactor datasets --check FILE`; make one to try with `--example FOLDER`.")


def _check(path: Path) -> None:
    from warpfactor.bench.data.dataset import FILES, read_dataset, refuse
    from warpfactor.bench.data.landmarks import landmark_problem

    dataset = read_dataset(path)
    refuse([problem for case in dataset.cases if (problem := landmark_problem(case))], path)
    counts = Counter(column for case in dataset.cases for column in case.files())
    groups = Counter(case.group for case in dataset.cases)
    typer.echo(f"{dataset.name}: {len(dataset.cases)} pairs; every file is there.")
    typer.echo("groups     " + ", ".join(f"{group} ({count})" for group, count in groups.items()))
    typer.echo("columns    " + ", ".join(f"{column} ({counts[column]})" for column in FILES if counts[column]))
    if dataset.label_names:
        typer.echo("labels     " + ", ".join(f"{label} {name}" for label, name in dataset.label_names.items()))


def _example(folder: Path, *, force: bool) -> None:
    from warpfactor.bench.data.example import write_example

    table = write_example(folder, force=force)
    typer.echo(f"Written    {table}")
    typer.echo(f"Try        warpfactor bench accuracy --data {table} --methods fast,default -o {folder}-results")

"""`warpfactor datasets`: explain the layout of datasets for the benchmarks, check one, or write an example."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from warpfactor.cli.options import Force
from warpfactor.errors import InputError


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Dataset of the paper: LUMIR, OASIS, NLST or AbdomenMRCT (default: all)."),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Check a table, a Learn2Reg dataset, or a folder of tables."),
    ] = None,
    example: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a small example dataset of phantoms.")
    ] = None,
    kinds: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write tables, one per kind of image, for a data folder with subfolders brain, mouse, lung, ...",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the tables of --kinds.")
    ] = None,
    force: Force = False,
) -> None:
    """Explain how to lay out a dataset for `warpfactor bench`, including the four datasets of the paper."""
    if check is not None:
        _check(check)
    elif example is not None:
        _example(example, force=force)
    elif kinds is not None:
        _kinds(kinds, output, force=force)
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
    typer.echo(
        "Check a dataset with `warpfactor datasets --check PATH`; write an example with `--example FOLDER`,\n"
        "and tables for several kinds of images with `--kinds FOLDER -o TABLES`."
    )


def _check(path: Path) -> None:
    from warpfactor.bench.data.dataset import FILES, read_dataset, refuse
    from warpfactor.bench.data.landmarks import landmark_problem

    dataset = read_dataset(path)
    refuse([problem for case in dataset.cases if (problem := landmark_problem(case))], path)
    counts = Counter(column for case in dataset.cases for column in case.files())
    groups = Counter(case.group for case in dataset.cases)
    typer.echo(f"{dataset.name}: {len(dataset.cases)} pairs; all files exist.")
    typer.echo("groups     " + ", ".join(f"{group} ({count})" for group, count in groups.items()))
    typer.echo("columns    " + ", ".join(f"{column} ({counts[column]})" for column in FILES if counts[column]))
    if dataset.label_names:
        typer.echo("labels     " + ", ".join(f"{label} {name}" for label, name in dataset.label_names.items()))


def _example(folder: Path, *, force: bool) -> None:
    from warpfactor.bench.data.example import write_example

    table = write_example(folder, force=force)
    typer.echo(f"Written    {table}")
    typer.echo(f"Try        warpfactor bench accuracy --data {table} --methods fast,default -o {folder}-results")


def _kinds(data: Path, output: Path | None, *, force: bool) -> None:
    from warpfactor.bench.data.kinds import write_kind_tables

    if output is None:
        raise InputError("The folder for the tables is missing; give it with -o FOLDER.")
    counts = write_kind_tables(data, output, force=force)
    typer.echo(f"Written    {output} with " + ", ".join(f"{kind} ({count})" for kind, count in counts.items()))
    typer.echo(f"Try        warpfactor bench accuracy --data {output} --methods default,greedy -o results")

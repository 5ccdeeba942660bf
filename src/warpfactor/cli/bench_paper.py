"""`warpfactor bench paper`: the experiments of the paper on your own image pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import bench_show
from warpfactor.cli.bench_accuracy import Again, Cases, Jobs, Masks, Minutes, RetryFailed, Threads
from warpfactor.cli.options import Quiet, parse_whole_numbers
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.bench.paper.pairs import Pairs
    from warpfactor.bench.paper.study import Experiment, Findings, Study, StudyPlan

NAMES = "main, labels, sensitivity, tile, tune, transfer, rejection, efficiency"


def command(  # noqa: PLR0913 - one argument per option
    experiment: Annotated[
        str | None,
        typer.Argument(metavar="EXPERIMENT", help=f"One of {NAMES}. Without an experiment, all are explained."),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Table of pairs (.csv, .tsv) or Learn2Reg dataset (.json or folder); may be given several times.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder of the results; an interrupted experiment resumes there."
        ),
    ] = None,
    cases: Cases = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="Maximum number of pairs of each dataset; the first ones are used."),
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Iterations per level of LM and Adam, coarse to fine, e.g. 100,50,20. Our own recipes take no more.",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Recipe that provides the initial affine, e.g. multimodal (default: the recipe in the table).",
        ),
    ] = None,
    points: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Number of values in each sweep of `sensitivity` (default: 12).")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Number of trials of `tune` and `transfer` (default: 50).")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="NUMBER", help="Seed of the search.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Dataset whose settings `transfer` applies to the others (default: the first)."
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Edge lengths N of the volumes of `efficiency` (default: 64 to 512)."),
    ] = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    masks: Masks = False,
    retry_failed: RetryFailed = False,
    again: Again = False,
    limit_minutes: Minutes = None,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper on your image pairs, and write tables, a plot and a page in Markdown.

    Runs that the output folder already holds are not repeated, so an interrupted experiment resumes where it stopped,
    and experiments in the same folder share their runs. `warpfactor datasets` explains the layout of the data. Example:
    warpfactor bench paper main --data OASIS/OASIS_dataset.json -o results
    """
    from warpfactor.bench.paper.study import Study, StudyPlan
    from warpfactor.bench.run.runner import RunOptions

    if experiment is None:
        _explain()
        return
    chosen = _known(experiment)
    numbers = parse_whole_numbers(iterations, "--iterations"), parse_whole_numbers(sizes, "--sizes")
    plan = StudyPlan(numbers[0], start, points, trials, seed, source, numbers[1])
    _check_options(chosen, plan)
    if output is None:
        raise InputError("The folder of the results is missing; give it with -o FOLDER.")
    timeout_s = None if limit_minutes is None else 60 * limit_minutes
    options = RunOptions(jobs, threads, masks, retry_failed, again, timeout_s=timeout_s)
    pairs = _pairs(chosen, data or [], cases, limit)
    with bench_show.resumable(output), bench_show.watching(quiet=quiet) as watch:
        say = None if quiet else _say
        study = Study(pairs, output, plan=plan, options=options, say=say, watch=watch)
        chosen.check(study)
        bench_show.announce_compilation([study.affine], quiet=quiet)
        findings = chosen.run(study)
    _finish(chosen, study, findings, quiet=quiet)


def _explain() -> None:
    """Explain all experiments, with an example for each."""
    from warpfactor.bench.paper import EXPERIMENTS

    for each in EXPERIMENTS.values():
        data = " --data OASIS/OASIS_dataset.json" if each.needs_data else ""
        more = " --data NLST/NLST_dataset.json" if "source" in each.options else ""
        typer.echo(f"{each.name}: {each.title} ({each.paper})\n  {each.question}")
        typer.echo(f"  warpfactor bench paper {each.name}{data}{more} -o results\n")
    typer.echo(
        "`warpfactor datasets` explains the layout of the data; `warpfactor bench paper --help` lists all options."
    )


def _known(name: str) -> Experiment:
    from warpfactor.bench.paper import EXPERIMENTS
    from warpfactor.recipebook.plain import unknown

    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def _check_options(chosen: Experiment, plan: StudyPlan) -> None:
    """Raise an InputError for an option that has no effect."""
    from warpfactor.bench.paper import EXPERIMENTS

    for name, value in vars(plan).items():
        if value is not None and name not in chosen.options:
            users = ", ".join(each.name for each in EXPERIMENTS.values() if name in each.options)
            raise InputError(f"--{name} has no effect on the experiment {chosen.name}; it is an option of {users}.")


def _pairs(chosen: Experiment, data: list[Path], cases: str | None, limit: int | None) -> Pairs:
    from warpfactor.bench.paper.pairs import Pairs, gather

    if not chosen.needs_data:
        if data or cases or limit:
            raise InputError(
                f"The experiment {chosen.name} makes its own images; leave out --data, --cases and --limit."
            )
        return Pairs()
    if not data:
        raise InputError("The image pairs are missing; give a table or a Learn2Reg dataset with --data PATH.")
    return gather(data, pattern=cases, limit=limit)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _finish(chosen: Experiment, study: Study, findings: Findings, *, quiet: bool) -> None:
    """Write the files, print the shorter tables, and report failures."""
    from warpfactor.bench.paper.page import write

    written = write(chosen, findings, study)
    if not quiet:
        bench_show.print_tables(findings.tables[1:] or findings.tables)
        bench_show.print_end(findings.runs, written)
        for failure in findings.failures:
            typer.echo(f"Failed    {failure}")
    if findings.failed:
        raise typer.Exit(bench_show.FAILED)

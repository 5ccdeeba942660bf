"""`warpfactor bench paper`: the paper's tables and figures, each as one command, on your own pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import bench_show
from warpfactor.cli.bench_accuracy import Again, Cases, Jobs, Masks, Minutes, RetryFailed, Threads
from warpfactor.cli.options import Quiet
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.bench.paper.data import Pairs
    from warpfactor.bench.paper.experiment import Experiment, Plan, Report
    from warpfactor.bench.paper.study import Study

NAMES = "main, labels, sensitivity, tile, tune, transfer, rejection, efficiency"


def command(  # noqa: PLR0913 - one argument per option
    experiment: Annotated[
        str | None, typer.Argument(metavar="EXPERIMENT", help=f"{NAMES}; without one they are explained.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="Table of pairs (.csv, .tsv) or a Learn2Reg dataset .json or folder; may be given several times.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write, and to go on from.")
    ] = None,
    cases: Cases = None,
    limit: Annotated[
        int | None, typer.Option(metavar="COUNT", help="At most so many pairs of each dataset, the first ones.")
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Per level of LM and Adam, coarse to fine, e.g. 100,50,20; ours take no more."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="RECIPE", help="Whose affine all start from, e.g. multimodal; as the table says without."),
    ] = None,
    points: Annotated[int | None, typer.Option(metavar="COUNT", help="Of each sweep of `sensitivity`; all 12.")] = None,
    trials: Annotated[int | None, typer.Option(metavar="COUNT", help="Of a search by `tune`, `transfer`; 50.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="NUMBER", help="Of a search.")] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Dataset that `transfer` searches on first; the first one.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="LIST", help="N of the volumes of `efficiency`; 64 to 512 as in the paper.")
    ] = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    masks: Masks = False,
    retry_failed: RetryFailed = False,
    again: Again = False,
    limit_minutes: Minutes = None,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments on your pairs: tables, figure and a page of Markdown.

    What OUTPUT holds already is not run again, so a stopped experiment goes on where it was, and experiments in the
    same folder share their runs. `warpfactor datasets` says how to lay out the data. For instance
    warpfactor bench paper main --data OASIS/OASIS_dataset.json -o results
    """
    from warpfactor.bench.paper.experiment import Plan
    from warpfactor.bench.paper.study import Study
    from warpfactor.bench.run.runner import Options

    if experiment is None:
        _explain()
        return
    chosen = _known(experiment)
    numbers = _whole_numbers(iterations, "--iterations"), _whole_numbers(sizes, "--sizes")
    plan = Plan(numbers[0], start, points, trials, seed, source, numbers[1])
    _check_options(chosen, plan)
    if output is None:
        raise InputError("Say where to write, and where to go on from next time: -o FOLDER.")
    timeout_s = None if limit_minutes is None else 60 * limit_minutes
    options = Options(jobs, threads, masks, retry_failed, again, timeout_s=timeout_s)
    pairs = _pairs(chosen, data or [], cases, limit)
    with bench_show.resumable(output), bench_show.watching(quiet=quiet) as watch:
        say = None if quiet else _say
        study = Study(pairs, output, plan=plan, options=options, say=say, watch=watch)
        chosen.check(study)
        bench_show.announce_compilation([study.affine], quiet=quiet)
        report = chosen.run(study)
    _finish(chosen, study, report, quiet=quiet)


def _explain() -> None:
    """What there is, with an example each."""
    from warpfactor.bench.paper import EXPERIMENTS

    for each in EXPERIMENTS.values():
        data = " --data OASIS/OASIS_dataset.json" if each.needs_data else ""
        more = " --data NLST/NLST_dataset.json" if "source" in each.options else ""
        typer.echo(f"{each.name}: {each.title} ({each.paper})\n  {each.question}")
        typer.echo(f"  warpfactor bench paper {each.name}{data}{more} -o results\n")
    typer.echo("`warpfactor datasets` says how to lay out the data; `warpfactor bench paper --help` lists all options.")


def _known(name: str) -> Experiment:
    from warpfactor.bench.paper import EXPERIMENTS
    from warpfactor.recipebook.plain import unknown

    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def _check_options(chosen: Experiment, plan: Plan) -> None:
    """InputError for an option that would have no effect."""
    from warpfactor.bench.paper import EXPERIMENTS

    for name, value in vars(plan).items():
        if value is not None and name not in chosen.options:
            users = ", ".join(each.name for each in EXPERIMENTS.values() if name in each.options)
            raise InputError(f"--{name} has no part in the experiment {chosen.name}; it is for {users}.")


def _pairs(chosen: Experiment, data: list[Path], cases: str | None, limit: int | None) -> Pairs:
    from warpfactor.bench.paper.data import Pairs, gather

    if not chosen.needs_data:
        if data or cases or limit:
            raise InputError(f"The experiment {chosen.name} makes its own images; leave out --data, --cases, --limit.")
        return Pairs()
    if not data:
        raise InputError("Say which pairs: --data FILE, a table or a Learn2Reg .json; see `warpfactor datasets`.")
    return gather(data, pattern=cases, limit=limit)


def _whole_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: whole numbers separated by commas are meant.") from None


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _finish(chosen: Experiment, study: Study, report: Report, *, quiet: bool) -> None:
    """Write the files, show the tables that are not too long, and say what failed."""
    from warpfactor.bench.paper.write import write

    written = write(chosen, report, study)
    if not quiet:
        bench_show.print_tables(report.tables[1:] or report.tables)
        bench_show.print_end(report.runs, written)
        for failure in report.failures:
            typer.echo(f"Failed    {failure}")
    if report.failed:
        raise typer.Exit(bench_show.FAILED)

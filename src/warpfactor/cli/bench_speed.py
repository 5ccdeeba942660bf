"""`warpfactor bench speed`: time and memory of iterations, of start-up, and of whole registrations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import bench_show, terminal
from warpfactor.cli.options import Quiet, parse_whole_numbers
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.bench.speed.plan import SpeedJob
    from warpfactor.bench.speed.runs import Announce, SpeedMeasurement


def command(  # noqa: PLR0913 - one argument per option
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Folder of the results; an interrupted benchmark resumes there.",
            show_default=False,
        ),
    ],
    sizes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Edge lengths N of N x N x N volumes (default: 64,96,128,192,256,384,512)."),
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="LIST", help="Metrics, a selection of lncc, mse, mi.")
    ] = "lncc,mse,mi",
    optimizers: Annotated[
        str, typer.Option(metavar="LIST", help="Optimizers, a selection of lm, adam, lm+rejection, default.")
    ] = "lm,adam,lm+rejection,default",
    brain: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="FIXED MOVING", help="Real image pair to measure as well, also from files to files."),
    ] = None,
    end_to_end: Annotated[
        str | None, typer.Option(metavar="LIST", help="Edge lengths N of volumes to register from files to files.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Maximum number of threads (default: all cores).")
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="COUNT", help="Number of repetitions of the whole benchmark; the minimum counts.")
    ] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Use small images and few repetitions, as a test.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Repeat all measurements.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure time and memory of one iteration for every optimizer and metric.

    For comparison, a scaled copy of a displacement field, the PyTorch kernels and, if installed, Greedy are measured in
    the same benchmark. Each measurement is a process of its own; measurements that the output folder already holds,
    made by the same code, are not repeated. Do not run other programs at the same time; limits on times are not
    checked if the machine is busy. On a shared machine use several rounds.
    """
    from warpfactor.bench.run import machine
    from warpfactor.bench.speed import runs, tables
    from warpfactor.bench.speed.plan import QUICK_SIZES, SIZES, SpeedPlan
    from warpfactor.cli import warmup

    plan = SpeedPlan(
        sizes=parse_whole_numbers(sizes, "--sizes") or (QUICK_SIZES if quick else SIZES),
        metrics=_names(metrics),
        optimizers=_names(optimizers),
        brain=_existing(brain),
        pair_sizes=parse_whole_numbers(end_to_end, "--end-to-end") or (),
        threads=threads or machine.cores(),
        quick=quick,
        rounds=rounds,
    )
    load = machine.load()  # before the benchmark starts
    if runs.is_busy(load, plan.threads) and not quiet:
        typer.echo(runs.load_warning(load), err=True)
    terminal.announce_compilation(quiet=quiet)
    warmup.command(quiet=True)
    with bench_show.resumable(output), _announcing(quiet=quiet) as announce:
        repeats = runs.run_all(plan.jobs(), output, again=again, announce=announce, load=load)
    measurements = runs.fastest(repeats)
    written = tables.write(measurements, plan, output)
    if not quiet:
        bench_show.print_tables(tables.tables(measurements, plan, load=runs.highest_load(output)))
        typer.echo(f"\nWritten   {', '.join(str(path) for path in written)}")
    _exit_code(repeats, quiet=quiet)


@contextmanager
def _announcing(*, quiet: bool) -> Iterator[Announce | None]:
    """Announce measurements: in a status line on a terminal, in plain lines elsewhere, or not at all."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda number, total, job: status.update(_sentence(number, total, job))
    else:
        yield lambda number, total, job: typer.echo(_sentence(number, total, job), err=True)


def _sentence(number: int, total: int, job: SpeedJob) -> str:
    return f"{number + 1:>4} of {total}  {job.label}"


def _exit_code(measurements: list[SpeedMeasurement], *, quiet: bool) -> None:
    failed = [m for m in measurements if m.failure]
    if failed and not quiet:
        typer.echo(f"Failed    {len(failed)} of {len(measurements)} measurements, for example {failed[0].job.label}.")
    if failed:
        raise typer.Exit(bench_show.FAILED)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _existing(brain: tuple[Path, Path] | None) -> tuple[Path, Path] | None:
    for path in brain or ():
        if not path.exists():
            raise InputError(f"{path}: there is no such file.")
    return brain

"""`warpfactor bench speed`: time and memory of iterations, start-up and whole runs on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import bench_show, terminal
from warpfactor.cli.options import Quiet
from warpfactor.errors import InputError

if TYPE_CHECKING:
    from warpfactor.bench.speed.job import Job
    from warpfactor.bench.speed.main import Measurement, Watcher


def command(  # noqa: PLR0913 - one argument per option
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder to write, and to go on from.", show_default=False
        ),
    ],
    sizes: Annotated[
        str | None, typer.Option(metavar="LIST", help="N of N x N x N volumes; 64,96,128,192,256,384,512 without.")
    ] = None,
    metrics: Annotated[str, typer.Option(metavar="LIST", help="Some of lncc, mse, mi.")] = "lncc,mse,mi",
    optimizers: Annotated[
        str, typer.Option(metavar="LIST", help="Some of lm, adam, lm+rejection, default.")
    ] = "lm,adam,lm+rejection,default",
    brain: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="FIXED MOVING", help="A real pair: its iterations, and end to end, beside Greedy."),
    ] = None,
    end_to_end: Annotated[
        str | None, typer.Option(metavar="LIST", help="N of volumes to register end to end, for instance 512.")
    ] = None,
    threads: Annotated[int | None, typer.Option(metavar="COUNT", help="At most so many; all without.")] = None,
    rounds: Annotated[
        int, typer.Option(metavar="COUNT", help="Measure everything so often, in turn; the least time holds.")
    ] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, few repeats: to see that it works.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure everything again.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure an iteration of every optimizer and metric: seconds, nanoseconds and bytes per voxel.

    In the same run: a scale-copy of three channels, the plain PyTorch kernels, and Greedy if it is installed. Each
    measurement is a fresh process; what OUTPUT holds already, measured by the same code, is not measured again. Leave
    the machine alone meanwhile; under other work, times are not judged. On a shared machine take several rounds.
    """
    from warpfactor.bench.run import machine
    from warpfactor.bench.speed import load as speed_load
    from warpfactor.bench.speed import report as speed_report
    from warpfactor.bench.speed.job import QUICK_SIZES, SIZES, Plan
    from warpfactor.bench.speed.main import fastest, run_all
    from warpfactor.cli import warmup

    plan = Plan(
        sizes=_sizes(sizes, "--sizes") or (QUICK_SIZES if quick else SIZES),
        metrics=_names(metrics),
        optimizers=_names(optimizers),
        brain=_existing(brain),
        pair_sizes=_sizes(end_to_end, "--end-to-end"),
        threads=threads or machine.cores(),
        quick=quick,
        rounds=rounds,
    )
    load = machine.load()  # before anything of ours runs
    if speed_load.is_busy(load, plan.threads) and not quiet:
        typer.echo(speed_load.sentence(load), err=True)
    terminal.announce_compilation(quiet=quiet)
    warmup.command(quiet=True)
    with bench_show.resumable(output), _watching(quiet=quiet) as watch:
        turns = run_all(plan.jobs(), output, again=again, watch=watch, load=load)
    measurements = fastest(turns)
    written = speed_report.write(measurements, plan, output)
    if not quiet:
        known = speed_load.highest_load(output)
        bench_show.print_tables(speed_report.tables(measurements, plan, load=known))
        typer.echo(f"\nWritten   {', '.join(str(path) for path in written)}")
    _exit_code(turns, quiet=quiet)


@contextmanager
def _watching(*, quiet: bool) -> Iterator[Watcher | None]:
    """A live line on a terminal, one line a measurement elsewhere, or nothing."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda number, total, job: status.update(_sentence(number, total, job))
    else:
        yield lambda number, total, job: typer.echo(_sentence(number, total, job), err=True)


def _sentence(number: int, total: int, job: Job) -> str:
    return f"{number + 1:>4} of {total}  {job.label}"


def _exit_code(measurements: list[Measurement], *, quiet: bool) -> None:
    failed = [m for m in measurements if m.failure]
    if failed and not quiet:
        typer.echo(f"Failed    {len(failed)} of {len(measurements)} measurements, such as {failed[0].job.label}.")
    if failed:
        raise typer.Exit(bench_show.FAILED)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _sizes(text: str | None, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _names(text or ""))
    except ValueError:
        raise InputError(f"{option} {text}: whole numbers separated by commas are meant.") from None


def _existing(brain: tuple[Path, Path] | None) -> tuple[Path, Path] | None:
    for path in brain or ():
        if not path.exists():
            raise InputError(f"{path}: there is no such file.")
    return brain

"""Progress and results of the benchmarks on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from warpfactor.cli import terminal

if TYPE_CHECKING:
    from warpfactor.bench.run.method import Method
    from warpfactor.bench.run.record import Run
    from warpfactor.bench.run.runner import RunProgress, Watcher
    from warpfactor.bench.score.tables import Table

FAILED, INTERRUPTED, TERMINATED = 3, 130, 143  # exit codes: some runs failed; interrupted by Ctrl-C; ended by SIGTERM


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watcher | None]:
    """Watcher for `run_all`: a progress bar on a terminal, plain lines elsewhere, or None."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("remaining"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            yield _Bar(bar)
    else:
        yield _line


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, say how to resume."""
    rest = f"finished runs are in {folder}, and the same command resumes there."
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"warpfactor: Interrupted; {rest}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except SystemExit as error:
        if error.code == TERMINATED:
            typer.echo(f"warpfactor: Stopped; {rest}", err=True)
            raise typer.Exit(TERMINATED) from None
        raise


def announce_compilation(methods: Sequence[Method], *, quiet: bool) -> None:
    """Announce that the first run compiles the kernels, if that is the case."""
    from warpfactor.bench.run.method import OURS
    from warpfactor.kernels.numba._compile.cache import holdings

    if not quiet and any(method.tool == OURS for method in methods) and not any(holdings().values()):
        typer.echo(
            f"The first run compiles the kernels (about {terminal.COMPILE_SECONDS} s) and is then repeated.",
            err=True,
        )


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables with their titles."""
    from warpfactor.bench.score.tables import cells

    for table in tables:
        typer.echo(f"\n{table.title}")
        typer.echo(terminal.table([column.title for column in table.columns], cells(table)), nl=False)


def print_end(runs: Sequence[Run], written: Sequence[Path]) -> None:
    """Print where the results are, how many runs failed, and whether the code has changed."""
    from warpfactor.bench.run.runner import made_by_other_code

    typer.echo(f"\nWritten   {', '.join(str(path) for path in written)}")
    distinct = {
        run.entries.get("key", (run.group, run.case, run.method)): run for run in runs
    }  # two labels may share a run
    failed = [run for run in distinct.values() if not run.done]
    if failed:
        typer.echo(f"Failed    {len(failed)} of {len(distinct)} runs; --retry-failed repeats them.")
    old = made_by_other_code(runs)
    if old:
        typer.echo(
            f"Caution   {old} runs in this folder were made by another state of the code; --again repeats all runs."
        )


def exit_code(runs: Sequence[Run]) -> None:
    """Exit with code 3 if a run failed, so that scripts notice."""
    if any(not run.done for run in runs):
        raise typer.Exit(FAILED)


class _Bar:
    """A progress bar; runs of earlier sessions do not count for the remaining time."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def __call__(self, state: RunProgress) -> None:
        if state.run is None:
            self._bar.reset(self._task, total=state.total - state.done, description=f"{state.done} runs exist")
            return
        self._bar.update(self._task, completed=state.fresh, description=_name(state.run))


def _line(state: RunProgress) -> None:
    if state.run is None:
        typer.echo(f"{state.done} of {state.total} runs exist already", err=True)
        return
    typer.echo(f"{state.done:>4} of {state.total}  {_name(state.run)}", err=True)


def _name(run: Run) -> str:
    if not run.done:
        return f"{run.case}, {run.method}: failed, {run.reason}"
    return f"{run.case}, {run.method}: {run.scores.get('wall_s', 0.0):.1f} s"

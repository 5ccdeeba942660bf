"""Options of the commands that run on Dask, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import wording

if TYPE_CHECKING:
    from warpfactor.cohort import EngineSettings

INVALID, INTERRUPTED = 2, 130
KEPT = "Interrupted; what is finished is kept, and the same command goes on from there."

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="COUNT", help="Number of worker processes (default: as many as cores and memory allow)."
    ),
]
ThreadsPerWorker = Annotated[
    int, typer.Option("--threads-per-worker", metavar="COUNT", help="Number of threads of each registration.")
]
MemoryPerWorker = Annotated[
    str | None,
    typer.Option(
        "--memory-per-worker", metavar="SIZE", help="Memory limit of each worker, for instance 4GB (default: none)."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Address of a running Dask scheduler, for instance tcp://host:8786."
    ),
]
Jobqueue = Annotated[
    str | None,
    typer.Option("--jobqueue", metavar="KIND", help="Start workers as jobs of a queue: slurm, pbs, sge or lsf."),
]
JobqueueConfig = Annotated[
    Path | None,
    typer.Option("--jobqueue-config", metavar="FILE", help="YAML file with settings of dask-jobqueue."),
]


def engine_settings(
    workers: int | None,
    threads_per_worker: int,
    memory_per_worker: str | None,
    scheduler: str | None,
    jobqueue: str | None,
    jobqueue_config: Path | None,
) -> EngineSettings:
    """The settings that the options stand for."""
    from warpfactor.cohort import EngineSettings

    return EngineSettings(workers, threads_per_worker, memory_per_worker, scheduler, jobqueue, jobqueue_config)


@contextmanager
def cohort_errors() -> Iterator[None]:
    """Within the block, problems found beforehand are printed a line each, and Ctrl-C says that results are kept."""
    from warpfactor.cohort import CohortError

    try:
        yield
    except CohortError as error:
        for problem in error.problems:
            typer.echo(f"warpfactor: {wording.one_line(problem)}", err=True)
        raise typer.Exit(INVALID) from None
    except KeyboardInterrupt:
        typer.echo(f"warpfactor: {KEPT}", err=True)
        raise typer.Exit(INTERRUPTED) from None

"""Options of the commands that run on Dask, and what they stand for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

import typer

from warpfactor.cli import wording

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
Recipe = Annotated[str, typer.Option("--recipe", metavar="RECIPE", help="Recipe of the registrations.")]
OPTIONS: Mapping[str, tuple[Any, Any]] = {  # by the name of the setting, with its default
    "workers": (Workers, None),
    "threads_per_worker": (ThreadsPerWorker, 1),
    "memory_per_worker": (MemoryPerWorker, None),
    "scheduler": (Scheduler, None),
    "jobqueue": (Jobqueue, None),
    "jobqueue_config": (JobqueueConfig, None),
}


def engine_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `engine` stands for the options of where registrations run.

    Typer reads the options of a command from its signature; in that of the returned function the parameter is replaced
    by the options, of which EngineSettings are made when the command is called.
    """

    @functools.wraps(command)
    def run(**given: Any) -> None:
        from warpfactor.cohort import EngineSettings

        chosen = {name: given.pop(name) for name in OPTIONS}
        command(**given, engine=EngineSettings(**chosen))

    shown = {name: text for name, text in command.__annotations__.items() if name != "engine"}
    hints = get_type_hints(SimpleNamespace(__annotations__=shown), command.__globals__, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _options() if name == "engine" else [parameter.replace(annotation=hints[name])]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in OPTIONS.items()
    ]


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

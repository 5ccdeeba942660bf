"""`warpfactor bench accuracy`: methods on a list of pairs, scored alike, with tables and scatter plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpfactor.cli import bench_show
from warpfactor.cli.options import Quiet

if TYPE_CHECKING:
    from warpfactor.bench.data.dataset import Dataset

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="FILE",
        help="Table of pairs (.csv, .tsv), or a Learn2Reg dataset .json or folder; see `warpfactor datasets`.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write, and to go on from.", show_default=False),
]
Cases = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only cases whose name or group matches, e.g. 'brain*'.")
]
Jobs = Annotated[int, typer.Option(metavar="COUNT", help="Runs at the same time; 1 for honest times.")]
Threads = Annotated[int | None, typer.Option(metavar="COUNT", help="Of each run; the cores shared without.")]
Masks = Annotated[bool, typer.Option("--masks", help="Register inside the masks of the dataset, every method.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")]
Again = Annotated[bool, typer.Option("--again", help="Run everything again.")]
Minutes = Annotated[float | None, typer.Option(metavar="MINUTES", help="End a run that takes longer.")]


def command(  # noqa: PLR0913 - one argument per option
    data: Data,
    output: Out,
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="With commas: recipes, own, greedy, ants-synquick, ants-syn, demons; "
            "LABEL=NAME+SETTING=VALUE+... changes settings.",
        ),
    ] = "default",
    cases: Cases = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    masks: Masks = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the transforms of the runs.")] = False,
    retry_failed: RetryFailed = False,
    again: Again = False,
    limit_minutes: Minutes = None,
    quiet: Quiet = False,
) -> None:
    """Run methods on a list of pairs, from files, and compare overlap, landmarks, regularity, time and memory.

    What OUTPUT holds already is not run again, so a stopped benchmark goes on where it was. For instance
    --methods default,adam=default+deformable.optimizer=adam,greedy
    """
    from warpfactor.bench.data.dataset import check_files, read_dataset
    from warpfactor.bench.run.method import parse_methods
    from warpfactor.bench.run.runner import Options, run_all
    from warpfactor.bench.score import accuracy

    dataset = read_dataset(data, check=False).only(cases)
    check_files(dataset.cases, data)
    chosen = parse_methods(methods)
    timeout_s = None if limit_minutes is None else 60 * limit_minutes
    options = Options(jobs, threads, masks, retry_failed, again, keep, timeout_s)
    _say_what_is_missing(dataset, quiet=quiet)
    with bench_show.resumable(output), bench_show.watching(quiet=quiet) as watch:
        bench_show.announce_compilation(chosen, quiet=quiet)
        runs = run_all(dataset.cases, chosen, output, options, watch=watch)
    written = accuracy.write(runs, output, title=f"Accuracy on {dataset.name}")
    if not quiet:
        bench_show.print_tables(accuracy.tables(runs))
        bench_show.print_end(runs, written)
    bench_show.exit_code(runs)


def _say_what_is_missing(dataset: Dataset, *, quiet: bool) -> None:
    """Cases without anything to be scored by are easily overlooked."""
    bare = [case.name for case in dataset.cases if not (case.fixed_labels or case.fixed_landmarks)]
    if bare and not quiet:
        shown = bare[0] + (" ..." if len(bare) > 1 else "")
        typer.echo(
            f"{len(bare)} of {len(dataset.cases)} cases have neither labels nor landmarks ({shown}): "
            "only mutual information, regularity, time and memory can be measured there.",
            err=True,
        )

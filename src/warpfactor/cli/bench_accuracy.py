"""`warpfactor bench accuracy`: run methods on image pairs, score them alike, and write tables and plots."""

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
        metavar="PATH",
        help="Table of pairs (.csv, .tsv), Learn2Reg dataset (.json or folder), or folder of tables, one per kind of "
        "image; see `warpfactor datasets`.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Folder of the results; an interrupted benchmark resumes there.",
        show_default=False,
    ),
]
Cases = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Use only pairs whose name or group matches, e.g. 'brain*'.")
]
Jobs = Annotated[
    int, typer.Option(metavar="COUNT", help="Number of simultaneous runs. Times are accurate with 1 only.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", help="Maximum number of threads of each run (default: all cores, divided by --jobs)."
    ),
]
Masks = Annotated[bool, typer.Option("--masks", help="Register inside the masks of the dataset, with every method.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that failed.")]
Again = Annotated[bool, typer.Option("--again", help="Repeat all runs.")]
Minutes = Annotated[
    float | None, typer.Option(metavar="MINUTES", help="Maximum duration of a run; longer ones count as failed.")
]


def command(  # noqa: PLR0913 - one argument per option
    data: Data,
    output: Out,
    methods: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Methods separated by commas: recipes, own, greedy, ants-synquick, ants-syn, demons. "
            "LABEL=NAME+SETTING=VALUE+... changes settings. The first method is compared with the others.",
        ),
    ] = "default",
    cases: Cases = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    masks: Masks = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the transforms.")] = False,
    retry_failed: RetryFailed = False,
    again: Again = False,
    limit_minutes: Minutes = None,
    quiet: Quiet = False,
) -> None:
    """Register image pairs with several methods and compare overlap, landmark errors, regularity, time and memory.

    Runs that the output folder already holds are not repeated, so an interrupted benchmark resumes where it stopped.
    If --data is a folder of tables, one table compares the methods over all kinds of images. Example:
    --methods default,smooth=default+deformable.sigma_warp=1.0,greedy
    """
    from warpfactor.bench.data.dataset import check_files, read_dataset
    from warpfactor.bench.run.method import parse_methods
    from warpfactor.bench.run.runner import RunOptions, run_all
    from warpfactor.bench.score import accuracy, kinds

    dataset = read_dataset(data, check=False).only(cases)
    check_files(dataset.cases, data)
    chosen = parse_methods(methods)
    timeout_s = None if limit_minutes is None else 60 * limit_minutes
    options = RunOptions(jobs, threads, masks, retry_failed, again, keep, timeout_s)
    _warn_without_truth(dataset, quiet=quiet)
    with bench_show.resumable(output), bench_show.watching(quiet=quiet) as watch:
        bench_show.announce_compilation(chosen, quiet=quiet)
        runs = run_all(dataset.cases, chosen, output, options, watch=watch)
    several = [kinds.kind_table(runs), kinds.win_table(runs)] if len({run.group for run in runs}) > 1 else []
    written = accuracy.write(runs, output, title=f"Accuracy on {dataset.name}", summaries=several)
    if not quiet:
        bench_show.print_tables([*several, *accuracy.tables(runs, detailed=not several)])
        bench_show.print_end(runs, written)
    bench_show.exit_code(runs)


def _warn_without_truth(dataset: Dataset, *, quiet: bool) -> None:
    """Warn of pairs that have neither labels nor landmarks."""
    bare = [case.name for case in dataset.cases if not (case.fixed_labels or case.fixed_landmarks)]
    if bare and not quiet:
        shown = bare[0] + (" ..." if len(bare) > 1 else "")
        typer.echo(
            f"{len(bare)} of {len(dataset.cases)} pairs have neither labels nor landmarks ({shown}); "
            "only mutual information, regularity, time and memory are measured for them.",
            err=True,
        )

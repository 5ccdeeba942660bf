"""`warpfactor bench`: the benchmarks as commands; each lives in a file of its own and is one line here."""

from __future__ import annotations

from functools import partial

import typer

from warpfactor.cli import bench_accuracy, bench_paper, bench_speed
from warpfactor.cli.options import Command

app = typer.Typer(
    help="Measure accuracy on your own pairs, and speed; beside other tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add = partial(app.command, cls=Command)
_add("accuracy", short_help="Overlap, landmark errors, regularity, time and memory of methods on a list of pairs.")(
    bench_accuracy.command
)
_add("speed", short_help="Seconds and bytes of an iteration by size, metric and optimizer; start-up; whole runs.")(
    bench_speed.command
)
_add("paper", short_help="The tables and figures of the optimizer's paper, each as one command, on your pairs.")(
    bench_paper.command
)

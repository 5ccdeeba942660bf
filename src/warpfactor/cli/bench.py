"""`warpfactor bench`: the benchmarks. Each command is one module and one entry here."""

from __future__ import annotations

from functools import partial

import typer

from warpfactor.cli import bench_accuracy, bench_gpu, bench_paper, bench_speed, bench_verdicts
from warpfactor.cli.options import Command

app = typer.Typer(
    help="Measure accuracy and speed on your own image pairs, and compare with other tools.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_add = partial(app.command, cls=Command)
_add("accuracy", short_help="Compare overlap, landmark errors, regularity, time and memory of methods on image pairs.")(
    bench_accuracy.command
)
_add("speed", short_help="Measure time and memory of iterations, of start-up, and of whole registrations.")(
    bench_speed.command
)
_add("gpu", short_help="Compile the GPU kernels, and predict time and memory from what they move; needs no GPU.")(
    bench_gpu.command
)
_add("paper", short_help="Reproduce the tables and figures of the paper on your own image pairs.")(bench_paper.command)
_add("verdicts", short_help="Count how often the verdict on good and failing results is wrong.")(bench_verdicts.command)

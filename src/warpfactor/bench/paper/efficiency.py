"""Table 5: memory and time of an iteration over the size of the images, Adam against LM; measured by `bench speed`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import draw, published
from warpfactor.bench.paper.experiment import SIZES, Experiment, Report
from warpfactor.bench.paper.study import Study
from warpfactor.bench.run.machine import cores
from warpfactor.bench.speed import load as speed_load
from warpfactor.bench.speed import main as speed
from warpfactor.bench.speed.job import Job, Plan
from warpfactor.bench.speed.main import Measurement
from warpfactor.bench.speed.plot import start_at_zero
from warpfactor.bench.speed.tables import NAMES, efficiency_table, is_plain, iteration_table

METRIC = "lncc"
OPTIMIZERS = ("adam", "lm", "default")


def jobs_of(study: Study) -> list[Job]:
    """One iteration of each optimizer at each size, our own kernels only."""
    plan = Plan(study.plan.sizes or SIZES, (METRIC,), OPTIMIZERS, threads=study.options.threads or cores())
    wanted = [job for job in plan.jobs() if job.kind == "iteration" and job.backend == "numba"]
    return [job for job in wanted if job.optimizer in OPTIMIZERS]


def _check(study: Study) -> None:
    """Sizes that cannot be measured are found here."""
    jobs_of(study)


def _run(study: Study) -> Report:
    def watch(number: int, total: int, job: Job) -> None:
        study.say(f"{number + 1:>4} of {total}  {job.label}")

    folder = study.folder / EXPERIMENT.name
    found = speed.run_all(jobs_of(study), folder, again=study.options.again, watch=watch)
    tables = [iteration_table(found), efficiency_table(found, METRIC), published.EFFICIENCY]
    notes = [
        "One iteration at full resolution, LNCC, on cubes of side N, each in a fresh process. Memory is the most that "
        "the process held over what it held before there were images, the two images included."
    ]
    load = speed_load.highest_load(folder)
    if speed_load.is_busy(load, study.options.threads or cores()):
        notes.append(speed_load.sentence(load))
    failures = [f"{m.job.label}: {m.failure}" for m in found if m.failure]
    return Report([table for table in tables if table.rows], notes, lambda path: _draw(found, path), failures=failures)


def _draw(measurements: Sequence[Measurement], path: Path) -> Path:
    """Peak megabytes and seconds over N."""
    sheet = draw.Sheet(1, 2)
    done = [m for m in measurements if is_plain(m) and m.figures]
    for column, (key, unit, y) in enumerate((("peak_bytes", 1e6, "peak MB"), ("seconds", 1.0, "s per iteration"))):
        axes = sheet.axes(0, column, title=f"LNCC: {y}", x="N of N x N x N voxels", y=y)
        for number, optimizer in enumerate(OPTIMIZERS):
            own = [m for m in done if m.job.optimizer == optimizer and m.figures[key] is not None]
            if own:
                draw.curve(axes, number, NAMES[optimizer], [(m.job.size, m.figures[key] / unit) for m in own])
        start_at_zero(axes)
    return sheet.save(path)


EXPERIMENT = Experiment(
    name="efficiency",
    title="Memory and time of an iteration",
    question="How much memory and time does LM save over Adam?",
    paper="table 5",
    run=_run,
    options=frozenset({"sizes"}),
    check=_check,
    needs_data=False,
)

"""Table 5 of the paper: memory and time per iteration by image size, for Adam and LM, measured by `bench speed`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpfactor.bench.paper import draw, published
from warpfactor.bench.paper.study import SIZES, Experiment, Findings, Study
from warpfactor.bench.run.machine import cores
from warpfactor.bench.speed import runs as speed
from warpfactor.bench.speed.claims import is_own_iteration
from warpfactor.bench.speed.plan import SpeedJob, SpeedPlan
from warpfactor.bench.speed.runs import SpeedMeasurement
from warpfactor.bench.speed.tables import TITLES, efficiency_table, iteration_table, start_at_zero

METRIC = "lncc"
OPTIMIZERS = ("adam", "lm", "default")


def jobs_of(study: Study) -> list[SpeedJob]:
    """One iteration of each optimizer at each size, with our own kernels."""
    plan = SpeedPlan(study.plan.sizes or SIZES, (METRIC,), OPTIMIZERS, threads=study.options.threads or cores())
    wanted = [job for job in plan.jobs() if job.kind == "iteration" and job.backend == "numba"]
    return [job for job in wanted if job.optimizer in OPTIMIZERS]


def _check(study: Study) -> None:
    """Raise an InputError for sizes that cannot be measured."""
    jobs_of(study)


def _run(study: Study) -> Findings:
    def announce(number: int, total: int, job: SpeedJob) -> None:
        study.say(f"{number + 1:>4} of {total}  {job.label}")

    folder = study.folder / EXPERIMENT.name
    found = speed.run_all(jobs_of(study), folder, again=study.options.again, announce=announce)
    tables = [iteration_table(found), efficiency_table(found, METRIC), published.EFFICIENCY]
    notes = [
        "One iteration at full resolution with LNCC on N x N x N images, each measured in a fresh process. Memory is "
        "the peak memory of the process minus its memory before the images were made; it includes both images."
    ]
    load = speed.highest_load(folder)
    if speed.is_busy(load, study.options.threads or cores()):
        notes.append(speed.load_warning(load))
    failures = [f"{m.job.label}: {m.failure}" for m in found if m.failure]
    return Findings(
        [table for table in tables if table.rows], notes, lambda path: _draw(found, path), failures=failures
    )


def _draw(measurements: Sequence[SpeedMeasurement], path: Path) -> Path:
    """Plot peak memory and seconds over N."""
    sheet = draw.PanelGrid(1, 2)
    done = [m for m in measurements if is_own_iteration(m) and m.values]
    for column, (key, unit, y) in enumerate((("peak_bytes", 1e6, "peak MB"), ("seconds", 1.0, "s per iteration"))):
        axes = sheet.axes(0, column, title=f"LNCC: {y}", x="N of N x N x N voxels", y=y)
        for number, optimizer in enumerate(OPTIMIZERS):
            own = [m for m in done if m.job.optimizer == optimizer and m.values[key] is not None]
            if own:
                draw.curve(axes, number, TITLES[optimizer], [(m.job.size, m.values[key] / unit) for m in own])
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

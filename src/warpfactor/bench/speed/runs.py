"""Run the measurements of the speed benchmark, each in a fresh process, and keep their results in a folder.

Measurements that the folder already holds, made by the same code, are not repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from warpfactor.bench.run import machine
from warpfactor.bench.run.process import end
from warpfactor.bench.run.runner import code_hash
from warpfactor.bench.speed.plan import SpeedJob
from warpfactor.io import atomic_path

RUNS, LOAD = "runs", "load.json"
BUSY = 0.25  # system load per thread from which times are not trusted


@dataclass(frozen=True)
class SpeedMeasurement:
    """A job and its result.

    Attributes:
        job: The job.
        values: Measured values by name; empty if the measurement failed.
        failure: Why it failed; empty if it did not.
    """

    job: SpeedJob
    values: dict[str, Any]
    failure: str = ""


Announce = Callable[[int, int, SpeedJob], None]


def run_all(
    jobs: Sequence[SpeedJob],
    folder: Path,
    *,
    again: bool = False,
    announce: Announce | None = None,
    load: float | None = None,
) -> list[SpeedMeasurement]:
    """Measure every job that the folder does not hold yet, and return the results of all jobs.

    Args:
        jobs: What to measure.
        folder: Folder of the results; it is created if necessary.
        again: Whether to repeat the measurements that the folder holds.
        announce: Called before every measurement with its index, the number of jobs, and the job.
        load: System load before the benchmark started (default: the current load).
    """
    before = machine.load() if load is None else load
    found: list[SpeedMeasurement] = []
    noted = False
    for number, job in enumerate(jobs):
        path = folder / RUNS / f"{job.key}.json"
        result = None if again else _read(path, job)
        if result is None:
            if not noted:
                note_load(folder, before, again=again)
                noted = True
            if announce is not None:
                announce(number, len(jobs), job)
            result = _run(job)
            _write(result, path)
        found.append(result)
    return found


def fastest(measurements: Sequence[SpeedMeasurement]) -> list[SpeedMeasurement]:
    """For each job the repetition with the shortest time, and the largest peak memory of all repetitions.

    Other work on the machine only adds to the time, so the minimum is the best estimate.
    """
    repeats: dict[SpeedJob, list[SpeedMeasurement]] = {}
    for m in measurements:
        repeats.setdefault(replace(m.job, repeat=0), []).append(m)
    return [_best_of(job, found) for job, found in repeats.items()]


def _best_of(job: SpeedJob, repeats: list[SpeedMeasurement]) -> SpeedMeasurement:
    good = [m for m in repeats if not m.failure]
    if not good:
        return replace(repeats[0], job=job)
    if "seconds" not in good[0].values:  # start-up, windows and sizes: each value is a time by itself
        return SpeedMeasurement(job, {name: min(m.values[name] for m in good) for name in good[0].values})
    best = min(good, key=lambda m: float(m.values["seconds"]))
    peaks = [m.values["peak_bytes"] for m in good if m.values.get("peak_bytes") is not None]
    return SpeedMeasurement(job, {**best.values, **({"peak_bytes": max(peaks)} if peaks else {})})


def _run(job: SpeedJob) -> SpeedMeasurement:
    code, output, errors = _ask_worker(json.dumps(asdict(job)), machine.environment(job.threads))
    if code == 0:
        return SpeedMeasurement(job, json.loads(output.splitlines()[-1]))
    lines = errors.strip().splitlines()
    killed = f"The process was killed by signal {-code}; signal 9 usually means that the machine ran out of memory."
    return SpeedMeasurement(job, {}, killed if code < 0 else lines[-1] if lines else "The process gave no reason.")


def _ask_worker(request: str, environment: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a fresh process, which ends together with this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "warpfactor.bench.speed.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with process:
        try:
            output, errors = process.communicate(request)
        except BaseException:
            end(process)
            raise
    return process.returncode, output, errors


def _write(measurement: SpeedMeasurement, path: Path) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(json.dumps({"code": code_hash(), **asdict(measurement)}), encoding="utf-8")


def _read(path: Path, job: SpeedJob) -> SpeedMeasurement | None:
    if not path.exists():
        return None
    entries = json.loads(path.read_text(encoding="utf-8"))
    if entries["code"] != code_hash() or entries["failure"]:
        return None
    return SpeedMeasurement(job, entries["values"])


# Other work on the machine


def note_load(folder: Path, load: float, *, again: bool = False) -> None:
    """Record the system load at the start of a benchmark; the folder keeps the highest one.

    Args:
        folder: Folder of the results.
        load: System load before the benchmark started.
        again: Whether all measurements are repeated, so that earlier loads no longer matter.
    """
    highest = load if again else max(load, highest_load(folder))
    with atomic_path(folder / LOAD, force=True) as temporary:
        temporary.write_text(json.dumps({"load": highest}), encoding="utf-8")


def highest_load(folder: Path) -> float:
    """Highest recorded system load at the start of measurements in a folder; 0 if none was recorded."""
    try:
        return float(json.loads((folder / LOAD).read_text(encoding="utf-8"))["load"])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError):
        return 0.0


def is_busy(load: float, threads: int) -> bool:
    """Whether other work slows down measurements with this number of threads."""
    return load > BUSY * threads


def load_warning(load: float) -> str:
    """Sentence that warns of a high system load."""
    return f"Other programs were running (load {load:.1f}), so times are too long and ratios are approximate."

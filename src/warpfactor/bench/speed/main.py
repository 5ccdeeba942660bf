"""Run the measurements of `bench speed` one after the other, each in a fresh process, from a folder that can go on."""

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
from warpfactor.bench.speed import load as speed_load
from warpfactor.bench.speed.job import Job
from warpfactor.io import atomic_path

RUNS = "runs"


@dataclass(frozen=True)
class Measurement:
    """A job and what came of it.

    Attributes:
        job: as it was run.
        figures: plain data; empty if it failed.
        failure: why, in a sentence; empty if it did not.
    """

    job: Job
    figures: dict[str, Any]
    failure: str = ""


Watcher = Callable[[int, int, Job], None]


def run_all(
    jobs: Sequence[Job],
    folder: Path,
    *,
    again: bool = False,
    watch: Watcher | None = None,
    load: float | None = None,
) -> list[Measurement]:
    """Every job; those that the folder holds, measured by the same code, are not run again.

    Args:
        folder: of the results; made if missing.
        again: run all.
        watch: called before every job that is run, with its number, the number of all, and the job.
        load: of the machine before any work of ours; that of now without.
    """
    before = machine.load() if load is None else load
    found: list[Measurement] = []
    noted = False
    for number, job in enumerate(jobs):
        path = folder / RUNS / f"{job.key}.json"
        kept = None if again else _read(path, job)
        if kept is None:
            if not noted:
                speed_load.note(folder, before, again=again)
                noted = True
            if watch is not None:
                watch(number, len(jobs), job)
            kept = _run(job)
            _write(kept, path)
        found.append(kept)
    return found


def fastest(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Of each job the turn that took least time, to which other work only adds, with the most memory of all turns."""
    turns: dict[Job, list[Measurement]] = {}
    for m in measurements:
        turns.setdefault(replace(m.job, turn=0), []).append(m)
    return [_best_of(job, found) for job, found in turns.items()]


def _best_of(job: Job, turns: list[Measurement]) -> Measurement:
    good = [m for m in turns if not m.failure]
    if not good:
        return replace(turns[0], job=job)
    if "seconds" not in good[0].figures:  # start-up: each figure is a time of its own
        return Measurement(job, {name: min(m.figures[name] for m in good) for name in good[0].figures})
    best = min(good, key=lambda m: float(m.figures["seconds"]))
    peaks = [m.figures["peak_bytes"] for m in good if m.figures.get("peak_bytes") is not None]
    return Measurement(job, {**best.figures, **({"peak_bytes": max(peaks)} if peaks else {})})


def _run(job: Job) -> Measurement:
    code, output, errors = _ask_worker(json.dumps(asdict(job)), machine.environment(job.threads))
    if code == 0:
        return Measurement(job, json.loads(output.splitlines()[-1]))
    said = errors.strip().splitlines()
    killed = f"The process was killed by signal {-code}; signal 9 usually means that the memory was full."
    return Measurement(job, {}, killed if code < 0 else said[-1] if said else "It said nothing.")


def _ask_worker(request: str, environment: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a fresh process; if we are stopped, so is it."""
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


def _write(measurement: Measurement, path: Path) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(json.dumps({"code": code_hash(), **asdict(measurement)}), encoding="utf-8")


def _read(path: Path, job: Job) -> Measurement | None:
    if not path.exists():
        return None
    entries = json.loads(path.read_text(encoding="utf-8"))
    if entries["code"] != code_hash() or entries["failure"]:
        return None
    return Measurement(job, entries["figures"])

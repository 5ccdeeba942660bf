"""One run in a process of its own: `python -m warpfactor.bench.worker`, the job as JSON on standard input.

Only the registration is measured: from files to the transform as the tool leaves it. Starting Python and importing the
tool come before it, scoring after it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import Case
from warpfactor.bench.peers import PEERS
from warpfactor.bench.peers.base import load
from warpfactor.bench.run import machine
from warpfactor.bench.run.meter import measured
from warpfactor.bench.run.method import OURS, run_task
from warpfactor.bench.run.outcome import Task
from warpfactor.bench.run.run import DONE, write_run
from warpfactor.bench.score.score import Scores, score
from warpfactor.errors import WarpfactorError
from warpfactor.io import write_transform
from warpfactor.kernels.numba._compile.compilation import counted

REASON = "reason: "  # starts the line on standard error that says what a person should know


def run(job: Mapping[str, Any]) -> None:
    """Register, score and write the result of one job."""
    tool = str(job["tool"])
    load("warpfactor.registration.run" if tool == OURS else PEERS[tool].module)
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as scratch:
        task = Task(
            case=Case.from_dict(job["case"]),
            settings=job["settings"],
            threads=int(job["threads"]),
            scratch=Path(scratch),
            masks=bool(job["masks"]),
            initial=Path(job["initial"]) if job["initial"] else None,
        )
        with counted() as compiled, measured() as cost:
            outcome = run_task(tool, task)
        began = time.perf_counter()
        transform = outcome.read()
        scores = score(task.case, transform)
        if job["keep"]:
            write_transform(transform, job["keep"], force=True)
    write_run(
        {
            **_head(job),
            "status": DONE,
            "figures": {**scores.figures, **asdict(cost), "scoring_s": time.perf_counter() - began},
            **_lists(scores),
            "details": outcome.details,
            "compiled_kernels": compiled.count,
            "machine": machine.describe(),
        },
        Path(job["output"]),
    )


def _head(job: Mapping[str, Any]) -> dict[str, Any]:
    names = ("key", "code", "case", "method", "tool", "settings", "masks", "initial", "threads", "jobs")
    return {name: job[name] for name in names}


def _lists(scores: Scores) -> dict[str, Any]:
    return {"per_label": scores.per_label, "per_landmark_mm": list(scores.per_landmark_mm)}


def main() -> None:
    """Entry point; ends the process with 1 and a reason if the job fails."""
    job = json.loads(sys.stdin.read())
    try:
        run(job)
    except MemoryError:
        _fail("The memory is full.")
    except WarpfactorError as error:
        _fail(str(error))
    except Exception as error:
        import traceback

        traceback.print_exc()
        _fail(f"{type(error).__name__}: {error}")


def _fail(reason: str) -> None:
    sys.stderr.write(f"{REASON}{' '.join(reason.split())}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()

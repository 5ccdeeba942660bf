"""Process of one run: `python -m warpfactor.bench.run.worker` with the plan of the run as JSON on standard input.

Time and memory are those of the registration alone: from reading the images to the transform in the form in which the
tool leaves it. Starting Python and importing the tool come before, scoring comes after.
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

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.peers import PEERS
from warpfactor.bench.peers.base import load
from warpfactor.bench.run import machine
from warpfactor.bench.run.meter import measured
from warpfactor.bench.run.method import OURS, run_task
from warpfactor.bench.run.record import DONE, write_run
from warpfactor.bench.run.task import Task
from warpfactor.bench.score.score import Scores, score
from warpfactor.errors import WarpfactorError
from warpfactor.io import write_transform
from warpfactor.kernels.numba._compile.compilation import counted

REASON = "reason: "  # prefix of the line on standard error that states why a run failed


def run(plan: Mapping[str, Any]) -> None:
    """Register, score, and write the record of one run."""
    tool = str(plan["tool"])
    load("warpfactor.registration.run" if tool == OURS else PEERS[tool].module)
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as scratch:
        task = Task(
            case=BenchCase.from_dict(plan["case"]),
            settings=plan["settings"],
            threads=int(plan["threads"]),
            scratch=Path(scratch),
            masks=bool(plan["masks"]),
            initial=Path(plan["initial"]) if plan["initial"] else None,
        )
        with counted() as compiled, measured() as used:
            result = run_task(tool, task)
        began = time.perf_counter()
        transform = result.read()
        scores = score(task.case, transform)
        if plan["keep"]:
            write_transform(transform, plan["keep"], force=True)
    write_run(
        {
            **_head(plan),
            "status": DONE,
            "scores": {**scores.values, **asdict(used), "scoring_s": time.perf_counter() - began},
            **_lists(scores),
            "details": result.details,
            "compiled_kernels": compiled.count,
            "machine": machine.describe(),
        },
        Path(plan["output"]),
    )


def _head(plan: Mapping[str, Any]) -> dict[str, Any]:
    names = ("key", "code", "case", "method", "tool", "settings", "masks", "initial", "threads", "jobs")
    return {name: plan[name] for name in names}


def _lists(scores: Scores) -> dict[str, Any]:
    return {"per_label": scores.per_label, "per_landmark_mm": list(scores.per_landmark_mm)}


def main() -> None:
    """Make the run; on failure print a reason and exit with code 1."""
    plan = json.loads(sys.stdin.read())
    try:
        run(plan)
    except MemoryError:
        _fail("The machine ran out of memory.")
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

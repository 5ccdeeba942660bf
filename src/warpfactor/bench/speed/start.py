"""Seconds until a registration can begin: import, kernels loaded from disk, kernels compiled; fresh processes each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from warpfactor.bench.speed.job import Job

# The second registration of a process has everything in memory: what the first took longer is loading or compiling.
_SCRIPT = """
import json, time
t = [time.perf_counter()]
import warpfactor as wf, warpfactor.register.api
t.append(time.perf_counter())
pair = wf.phantom.phantom((24, 24, 24), displacement_vox=1.0)
images = pair.fixed.numpy(), pair.moving.numpy()
t.append(time.perf_counter())
for _ in range(2):
    wf.register(*images)
    t.append(time.perf_counter())
print(json.dumps({"import_seconds": t[1] - t[0], "kernels_seconds": (t[3] - t[2]) - (t[4] - t[3])}))
"""


def measure(job: Job) -> dict[str, Any]:
    """Seconds of the second start, and of one with an empty cache (not if `quick`)."""
    _start()
    kept = _start()
    found = {"import_seconds": kept["import_seconds"], "load_seconds": kept["kernels_seconds"]}
    if not job.quick:
        with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as empty:
            found["compile_seconds"] = _start(NUMBA_CACHE_DIR=empty)["kernels_seconds"]
    return found


def _start(**variables: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True, env={**os.environ, **variables}
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found

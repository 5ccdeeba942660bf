"""Process of one speed measurement: `python -m warpfactor.bench.speed.worker` with the job as JSON on standard input.

Start-up and whole registrations are measured here, from outside; iterations and yardsticks have files of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.peers.greedy import GREEDY
from warpfactor.bench.run import meter
from warpfactor.bench.run.task import Task
from warpfactor.bench.speed.images import write_pair
from warpfactor.bench.speed.iteration import measure_alternating, measure_iteration
from warpfactor.bench.speed.plan import SpeedJob
from warpfactor.bench.speed.yardsticks import measure_greedy
from warpfactor.errors import InputError, WarpfactorError
from warpfactor.registration.resources import limited_threads

# The second registration of a process finds everything in memory. The additional time of the first one is the time to
# load or compile the kernels.
_START = """
import json, time
t = [time.perf_counter()]
import warpfactor as wf
wf.register, wf.phantom.phantom
t.append(time.perf_counter())
pair = wf.phantom.phantom((24, 24, 24), displacement_vox=1.0)
images = pair.fixed.numpy(), pair.moving.numpy()
t.append(time.perf_counter())
for _ in range(2):
    wf.register(*images)
    t.append(time.perf_counter())
print(json.dumps({"import_seconds": t[1] - t[0], "kernels_seconds": (t[3] - t[2]) - (t[4] - t[3])}))
"""
_COMMAND = "from warpfactor.cli.app import main; main()"


def measure_start(job: SpeedJob) -> dict[str, Any]:
    """Seconds to import the package, to load compiled kernels and, unless `quick`, to compile them.

    Each is measured in a fresh process. The first start is not counted, because it may have to compile.
    """
    _start()
    cached = _start()
    found = {"import_seconds": cached["import_seconds"], "load_seconds": cached["kernels_seconds"]}
    if not job.quick:
        with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as empty:
            found["compile_seconds"] = _start(NUMBA_CACHE_DIR=empty)["kernels_seconds"]
    return found


def _start(**variables: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _START], check=True, capture_output=True, text=True, env={**os.environ, **variables}
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_pair(job: SpeedJob) -> dict[str, Any]:
    """Seconds and peak memory of a registration from files to files, as a user runs it."""
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as name:
        folder = Path(name)
        files = write_pair(job.size, folder) if job.size else (Path(job.fixed), Path(job.moving))
        grid = wf.read_image(files[0]).grid
        found = _greedy(job, files, folder) if job.method == "greedy" else _warpfactor(job, files, folder)
    return {"voxels": grid.voxel_count, "shape_zyx": list(grid.shape), **found}


def _warpfactor(job: SpeedJob, files: tuple[Path, Path], folder: Path) -> dict[str, Any]:
    """The command `warpfactor register`. The second run counts: the files are in the system's cache by then."""
    arguments = ["register", *map(str, files), "--recipe", job.method, "--threads", str(job.threads), "--quiet"]
    if not job.size:
        _run_command([*arguments, "-o", str(folder / "first")])
    seconds, peak = _run_command([*arguments, "-o", str(folder / "second")])
    return {"seconds": seconds, "peak_bytes": peak}


def _run_command(arguments: list[str]) -> tuple[float, int | None]:
    began = time.perf_counter()
    command = [sys.executable, "-c", _COMMAND, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = meter.PeakWatch(process.pid)
    watch.start()
    _, errors = process.communicate()
    seconds = time.perf_counter() - began
    watch.join()
    if process.returncode:
        raise InputError(f"`warpfactor {' '.join(arguments)}` failed: {errors.strip().splitlines()[-1:]}")
    return seconds, watch.peak_bytes


def _greedy(job: SpeedJob, files: tuple[Path, Path], folder: Path) -> dict[str, Any]:
    """Affine and deformable registration by Greedy, in this process."""
    scratch = folder / "greedy"
    scratch.mkdir()
    task = Task(BenchCase("pair", *files), GREEDY.settings, job.threads, scratch)
    began = time.perf_counter()
    GREEDY.run(task)
    return {"seconds": time.perf_counter() - began, "peak_bytes": None, "version": GREEDY.version()}


MEASUREMENTS: Mapping[str, Callable[[SpeedJob], dict[str, Any]]] = {
    "iteration": measure_iteration,
    "windows": measure_alternating,
    "sizes": measure_alternating,
    "greedy": measure_greedy,
    "start": measure_start,
    "pair": measure_pair,
}


def main() -> None:
    """Print the measured values as JSON on the last line of standard output, or a reason on standard error."""
    job = SpeedJob(**json.loads(sys.stdin.read()))
    try:
        with limited_threads(job.threads):
            found = MEASUREMENTS[job.kind](job)
    except (WarpfactorError, MemoryError) as error:
        sys.stderr.write(f"{error or 'The machine ran out of memory.'}\n")
        sys.exit(1)
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main()

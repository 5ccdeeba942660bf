"""A pair end to end, as a user runs it: `warpfactor register` from files to files, or Greedy's affine and warp."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.bench.data.dataset import Case
from warpfactor.bench.peers.greedy import GREEDY
from warpfactor.bench.run.outcome import Task
from warpfactor.bench.speed.images import write_pair
from warpfactor.bench.speed.job import Job
from warpfactor.errors import InputError

_MAIN = "from warpfactor.cli.app import main; main()"
_POLL_SECONDS = 0.02


def measure(job: Job) -> dict[str, Any]:
    """Seconds and peak bytes of the whole process, as plain data."""
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as name:
        folder = Path(name)
        files = write_pair(job.size, folder) if job.size else (Path(job.fixed), Path(job.moving))
        grid = wf.read_image(files[0]).grid
        found = _greedy(job, files, folder) if job.method == "greedy" else _ours(job, files, folder)
    return {"voxels": grid.voxel_count, "shape_zyx": list(grid.shape), **found}


def _ours(job: Job, files: tuple[Path, Path], folder: Path) -> dict[str, Any]:
    """The second run: files are in the system's cache, kernels on disk."""
    arguments = ["register", *map(str, files), "--recipe", job.method, "--threads", str(job.threads), "--quiet"]
    if not job.size:
        _run([*arguments, "-o", str(folder / "first")])
    seconds, peak = _run([*arguments, "-o", str(folder / "second")])
    return {"seconds": seconds, "peak_bytes": peak}


def _run(arguments: list[str]) -> tuple[float, int | None]:
    began = time.perf_counter()
    command = [sys.executable, "-c", _MAIN, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = _PeakWatch(process.pid)
    watch.start()
    _, said = process.communicate()
    seconds = time.perf_counter() - began
    watch.join()
    if process.returncode:
        raise InputError(f"`warpfactor {' '.join(arguments)}` failed: {said.strip().splitlines()[-1:]}")
    return seconds, watch.peak


class _PeakWatch(threading.Thread):
    """The high-water mark of another process, read until it ends."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{number}/status")
        self.peak: int | None = None

    def run(self) -> None:
        while True:
            try:
                text = self._status.read_text(encoding="ascii", errors="replace")
            except OSError:
                return
            marks = [line for line in text.splitlines() if line.startswith("VmHWM:")]
            if not marks:  # it has ended
                return
            self.peak = int(marks[0].split()[1]) * 1024
            time.sleep(_POLL_SECONDS)


def _greedy(job: Job, files: tuple[Path, Path], folder: Path) -> dict[str, Any]:
    """Its affine and warp alone, in this process."""
    scratch = folder / "greedy"
    scratch.mkdir()
    task = Task(Case("pair", *files), GREEDY.settings, job.threads, scratch)
    began = time.perf_counter()
    GREEDY.run(task)
    return {"seconds": time.perf_counter() - began, "peak_bytes": None, "version": GREEDY.version()}

"""Yardsticks beside our iterations: a scaled copy of a displacement field, and one iteration of Greedy.

The third yardstick, the PyTorch kernels, is the backend "reference" of the same measurement (`iteration`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import prange

import warpfactor as wf
from warpfactor.bench.run import meter
from warpfactor.bench.speed.images import write_pair
from warpfactor.bench.speed.plan import SpeedJob
from warpfactor.errors import InputError
from warpfactor.kernels.numba._compile.jit import exclusive, parallel

FACTOR = np.float32(1.001)
GREEDY_METRICS = {"lncc": "NCC 2x2x2", "mse": "SSD", "mi": "MI"}
GREEDY_SIGMA = "1.732vox 0.707vox"  # Greedy's default


@parallel
def _scale_copy(source: Any, target: Any, factor: Any) -> None:
    for i in prange(source.size):
        target[i] = factor * source[i]


class Span(NamedTuple):
    """Duration in seconds.

    Attributes:
        wall: Elapsed time.
        cpu: Processor time of all threads together, which depends less on other work on the machine.
    """

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Span:
        """Current readings of both clocks; the difference of two readings is a duration."""
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Span) -> Span:
        return Span(self.wall - other.wall, self.cpu - other.cpu)


class ScaleCopy:
    """Two three-channel fields; one is multiplied by a constant and written to the other.

    Every iteration reads and writes the displacement field at least once, so no iteration can be faster than this.
    """

    def __init__(self, voxels: int) -> None:
        self._source = np.ones(3 * voxels, np.float32)
        self._target = np.ones(3 * voxels, np.float32)
        self.time()  # compiles the kernel and touches the memory for the first time

    @exclusive
    def time(self) -> Span:
        """Duration of one copy."""
        began = Span.now()
        _scale_copy(self._source, self._target, FACTOR)
        return Span.now() - began


def measure_greedy(job: SpeedJob) -> dict[str, Any]:
    """Seconds of one iteration of Greedy at full resolution: the difference of a short and a longer run."""
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as name:
        folder = Path(name)
        files = write_pair(job.size, folder) if job.size else (Path(job.fixed), Path(job.moving))
        shape = wf.read_image(files[0]).grid.shape
        tool = importlib.import_module("picsl_greedy").Greedy3D()
        few, many = (1, 4) if job.quick else (2, 10)
        before = meter.reset_peak()
        seconds = [_run_greedy(tool, job, files, folder, count) for count in (few, many)]
        peak = meter.peak_bytes()
    return {
        "voxels": shape[0] * shape[1] * shape[2],
        "shape_zyx": list(shape),
        "window": 5,
        "iterations": many - few,
        "seconds": (seconds[1] - seconds[0]) / (many - few),
        "peak_bytes": None if before is None or peak is None else peak - before,
        "version": importlib.metadata.version("picsl_greedy"),
    }


def _run_greedy(tool: Any, job: SpeedJob, files: Sequence[Path], folder: Path, iterations: int) -> float:
    if any(" " in str(path) for path in (*files, folder)):
        raise InputError(f"{files[0]}: Greedy splits paths at spaces; use a folder without spaces in its name.")
    began = time.perf_counter()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        tool.execute(
            f"-d 3 -threads {job.threads} -i {files[0]} {files[1]} -m {GREEDY_METRICS[job.metric]} -n {iterations} "
            f"-s {GREEDY_SIGMA} -o {folder / 'warp.nii'}",
            log,
            log,
        )
    return time.perf_counter() - began

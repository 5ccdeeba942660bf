"""Seconds of one iteration of Greedy at full resolution: two runs that differ in their iterations only."""

from __future__ import annotations

import importlib
import importlib.metadata
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.bench.speed import memory as speed_memory
from warpfactor.bench.speed.images import write_pair
from warpfactor.bench.speed.job import Job
from warpfactor.errors import InputError

METRICS = {"lncc": "NCC 2x2x2", "mse": "SSD", "mi": "MI"}
SIGMA = "1.732vox 0.707vox"  # its default


def measure(job: Job) -> dict[str, Any]:
    """Figures of Greedy with the metric that corresponds, as plain data."""
    with tempfile.TemporaryDirectory(prefix="warpfactor-bench-") as name:
        folder = Path(name)
        files = write_pair(job.size, folder) if job.size else (Path(job.fixed), Path(job.moving))
        shape = wf.read_image(files[0]).grid.shape
        tool = importlib.import_module("picsl_greedy").Greedy3D()
        few, many = (1, 4) if job.quick else (2, 10)
        before = speed_memory.settle()
        seconds = [_run(tool, job, files, folder, count) for count in (few, many)]
        most = speed_memory.peak()
    return {
        "voxels": shape[0] * shape[1] * shape[2],
        "shape_zyx": list(shape),
        "iterations": many - few,
        "seconds": (seconds[1] - seconds[0]) / (many - few),
        "peak_bytes": None if before is None or most is None else most - before,
        "version": importlib.metadata.version("picsl_greedy"),
    }


def _run(tool: Any, job: Job, files: Sequence[Path], folder: Path, iterations: int) -> float:
    if any(" " in str(path) for path in (*files, folder)):
        raise InputError(f"{files[0]}: Greedy's interface splits paths at spaces; use a folder without them.")
    began = time.perf_counter()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        tool.execute(
            f"-d 3 -threads {job.threads} -i {files[0]} {files[1]} -m {METRICS[job.metric]} -n {iterations} "
            f"-s {SIGMA} -o {folder / 'warp.nii'}",
            log,
            log,
        )
    return time.perf_counter() - began

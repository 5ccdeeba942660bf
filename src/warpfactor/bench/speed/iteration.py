"""Seconds and bytes of one iteration, in the level solver that registrations use, at full resolution.

Two runs in one process, after a small one that loads or compiles the kernels. The first counts memory: the images, the
warp and all buffers, over what the process held before there were any. The second counts seconds, with a scale-copy of
the same size after every iteration, so that both have the same neighbours on the machine.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import numpy as np

import warpfactor as wf
from warpfactor import kernels
from warpfactor.bench.speed import memory as speed_memory
from warpfactor.bench.speed.copy import ScaleCopy, Span
from warpfactor.bench.speed.images import make_pair, scene_of
from warpfactor.bench.speed.job import Job
from warpfactor.bench.speed.settings import level_settings
from warpfactor.bench.speed.tables import place_of
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.scene.scene import Scene, make_scene
from warpfactor.stages.history import Record
from warpfactor.stages.pyramid import register_deformable

SMALL = 24  # voxels along an axis of the pair that loads the kernels
MEMORY_ITERATIONS = 3
WARM = 2  # iterations that do not count: their memory is touched for the first time
# Bytes a voxel that a measurement needs, scale-copy included; the plain kernels take that many times as much.
ROOM = {"lm": 64, "adam": 88, "lm+rejection": 76, "default": 64}
REFERENCE_FACTOR = 8


class Stopwatch:
    """Times of each iteration and of the scale-copy that follows it; `register_deformable` calls it as progress."""

    def __init__(self, copy: ScaleCopy, parts: Parts) -> None:
        self._copy, self._parts = copy, parts
        self.iterations: list[Span] = []
        self.copies: list[Span] = []
        self.rejected = 0
        self._since = Span.now()

    def __call__(self, record: Record) -> None:
        now = Span.now()
        if not record.accepted:  # the iteration goes on from the warp before
            self.rejected += 1
            return
        self.iterations.append(now - self._since)
        self._parts.end_iteration()
        self.copies.append(self._copy.time())
        self._since = Span.now()


class Parts:
    """Kernels that keep the time of each call; the second call of one kernel in an iteration is a part of its own."""

    def __init__(self, ops: ModuleType) -> None:
        self._ops = ops
        self._calls: list[tuple[str, float]] = []
        self.seconds: list[dict[str, float]] = []

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._ops, name)
        return self._timed(name, kernel) if callable(kernel) else kernel

    def end_iteration(self) -> None:
        found: dict[str, float] = {}
        names = [name for name, _ in self._calls]
        for number, (name, seconds) in enumerate(self._calls):
            turn = names[:number].count(name)
            found[f"{name} {turn + 1}" if turn else name] = seconds
        self.seconds.append(found)
        self._calls = []

    def _timed(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = kernel(*args, **kwargs)
            self._calls.append((name, time.perf_counter() - began))
            return result

        return timed


def measure(job: Job) -> dict[str, Any]:
    """Figures of one optimizer with one metric, as plain data."""
    check_room(job)
    ops = kernels.select("cpu", job.backend)
    _run(job, make_scene(*make_pair(SMALL)), np.eye(4), ops, iterations=2)
    scene_of(SMALL, "", "")
    before = speed_memory.settle()
    scene, affine = scene_of(job.size, job.fixed, job.moving)
    speed_memory.settle()
    _run(job, scene, affine, ops, iterations=MEMORY_ITERATIONS)
    most = speed_memory.peak()
    voxels = scene.fixed_grid.voxel_count
    return {
        "voxels": voxels,
        "shape_zyx": list(scene.fixed_grid.shape),
        "image_bytes": sum(t.numel() * t.element_size() for t in (scene.pair.fixed, scene.pair.moving)),
        "peak_bytes": None if before is None or most is None else most - before,
        **_timed(job, scene, affine, ops),
    }


def _timed(job: Job, scene: Scene, affine: Matrix, ops: ModuleType) -> dict[str, Any]:
    parts = Parts(ops)
    watch = Stopwatch(ScaleCopy(scene.fixed_grid.voxel_count), parts)
    count = WARM + _repeats(job, scene.fixed_grid.voxel_count)
    _run(job, scene, affine, cast(ModuleType, parts), iterations=count, progress=watch)
    spans, copies, calls = watch.iterations[WARM:], watch.copies[WARM:], parts.seconds[WARM:]
    middle = statistics.median_low(span.wall for span in spans)
    typical = [span.wall for span in spans].index(middle)
    return {
        "iterations": len(spans),
        "rejected": watch.rejected,
        "seconds": statistics.median(span.wall for span in spans),
        "cpu_seconds": statistics.median(span.cpu for span in spans),
        "copy_seconds": statistics.median(span.wall for span in copies),
        "copy_cpu_seconds": statistics.median(span.cpu for span in copies),
        "copies": statistics.median(s.wall / c.wall for s, c in zip(spans, copies, strict=True)),
        "copies_cpu": statistics.median(s.cpu / c.cpu for s, c in zip(spans, copies, strict=True)),
        "parts_seconds": {**calls[typical], "all else": middle - sum(calls[typical].values())},
    }


def _run(job: Job, scene: Scene, affine: Matrix, ops: ModuleType, *, iterations: int, progress: Any = None) -> None:
    settings = level_settings(job.optimizer, job.metric, iterations=iterations)
    register_deformable(scene, settings, ops=ops, affine=affine, progress=progress)


def _repeats(job: Job, voxels: int) -> int:
    """Iterations that count: fewer where one takes seconds."""
    if job.quick or job.backend == "reference":
        return 3
    return 11 if voxels <= 192**3 else 7 if voxels <= 256**3 else 5


def check_room(job: Job) -> None:
    """InputError instead of a machine that swaps."""
    voxels = job.size**3 if job.size else wf.read_image(job.fixed).grid.voxel_count
    room, need = speed_memory.available(), ROOM[job.optimizer] * voxels
    need *= REFERENCE_FACTOR if job.backend == "reference" else 1
    if room is not None and room < need:
        raise InputError(
            f"{place_of(job)}: {voxels} voxels need about {need / 2**30:.0f} GB of memory, {room / 2**30:.0f} are free."
        )

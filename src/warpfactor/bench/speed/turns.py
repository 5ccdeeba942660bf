"""Times that are compared with each other, in one process and in turn: of LNCC windows, and of sizes of the images.

A machine that is shared is slow for seconds or minutes, and whatever is measured then seems to be. Here everything gets
a turn before anything gets its next, and the least of its turns holds.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from warpfactor import kernels
from warpfactor.bench.speed.images import make_pair
from warpfactor.bench.speed.iteration import WARM, check_room
from warpfactor.bench.speed.job import Job
from warpfactor.bench.speed.settings import level_settings
from warpfactor.scene.scene import Scene, make_scene
from warpfactor.stages.history import Record
from warpfactor.stages.pyramid import register_deformable

TURNS = {"windows": 15, "sizes": 7}  # windows differ by less, and take less time
QUICK_TURNS = 2
ITERATIONS = 3  # of a turn, whose median counts; those before them touch memory for the first time


class Variant(NamedTuple):
    """What has a turn: LM with LNCC on N x N x N images; window 0 is that of the recipe."""

    size: int
    window: int


class Watch:
    """Seconds of each iteration; `register_deformable` calls it as progress."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._since = time.perf_counter()

    def __call__(self, record: Record) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self._since = now


def measure(job: Job) -> dict[str, Any]:
    """Nanoseconds a voxel and iteration, by window or size, as plain data."""
    check_room(replace(job, size=max(job.values)) if job.kind == "sizes" else job)
    ops = kernels.select("cpu", job.backend)
    variants = {value: Variant(value, 0) if job.kind == "sizes" else Variant(job.size, value) for value in job.values}
    scenes = {size: make_scene(*make_pair(size)) for size in {variant.size for variant in variants.values()}}
    found: dict[int, list[float]] = {value: [] for value in variants}
    for _ in range(QUICK_TURNS if job.quick else TURNS[job.kind]):
        for value, variant in variants.items():
            found[value].append(_turn(scenes[variant.size], variant.window, ops))
    return {str(value): min(times) for value, times in found.items()}


def _turn(scene: Scene, window: int, ops: ModuleType) -> float:
    watch = Watch()
    settings = level_settings("lm", "lncc", iterations=WARM + ITERATIONS, window=window)
    register_deformable(scene, settings, ops=ops, affine=np.eye(4), progress=watch)
    return 1e9 * statistics.median(watch.seconds[WARM:]) / scene.fixed_grid.voxel_count

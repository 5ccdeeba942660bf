"""Time and memory of one iteration of the level solver that registrations use, at full resolution.

This file holds all that the speed benchmark knows about the insides of a registration: scenes, level settings and the
events of `run_greedy`.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

import warpfactor as wf
from warpfactor import kernels
from warpfactor.bench.run import meter
from warpfactor.bench.speed.images import make_pair
from warpfactor.bench.speed.plan import OPTIMIZERS, SpeedJob
from warpfactor.bench.speed.yardsticks import ScaleCopy, Span
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.optim import Convergence
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.stage import Event, Watch
from warpfactor.terms import METRICS, Term

SMALL = 24  # edge length of the pair that loads or compiles the kernels before anything is measured
MEMORY_ITERATIONS = 3
WARM_UP = 2  # iterations that do not count, because they touch their memory for the first time
# Bytes per voxel that a measurement needs, the scaled copy included; the PyTorch kernels need a multiple of it.
REQUIRED_BYTES = {"lm": 64, "adam": 88, "lm+rejection": 76, "default": 64}
REFERENCE_FACTOR = 8
ALTERNATIONS = {"windows": 15, "sizes": 7}  # times per window differ by less, and a window takes less time to measure
QUICK_ALTERNATIONS = 2
ALTERNATION_ITERATIONS = 3  # of which the median counts


# Settings


def level_settings(optimizer: str, metric: str, *, iterations: int, window: int = 0) -> wf.Deformable:
    """Settings of the finest level of a recipe, with stopping rules off.

    Args:
        optimizer: One of OPTIMIZERS.
        metric: Name of the metric; LNCC has the settings of the recipe at its finest level.
        iterations: Number of iterations.
        window: Edge length of the LNCC window; 0 for that of the recipe.
    """
    name, changes = OPTIMIZERS[optimizer]
    found = wf.recipe(name).replace(changes).deformable
    if found is None:
        raise ValueError(f"recipe {name!r} has no deformable stage")
    return replace(
        found,
        metric=_finest(found.metric, metric, window),
        levels=(1,),
        iterations=(iterations,),
        convergence=Convergence(),
        broad_from=0.0,
    )


def window_of(optimizer: str) -> int:
    """Edge length of the LNCC window at the finest level of an optimizer's recipe."""
    metric = level_settings(optimizer, "lncc", iterations=1).metric
    return int(metric.size) if isinstance(metric, wf.LNCC) and isinstance(metric.size, int) else 0


def _finest(metric: Term, name: str, window: int) -> Term:
    if name != "lncc" or not isinstance(metric, wf.LNCC):
        plain: Term = METRICS[name]()
        return plain
    return replace(metric, size=window or (metric.size[-1] if isinstance(metric.size, tuple) else metric.size))


def _scene_of(job: SpeedJob, ops: Ops) -> tuple[Scene, Matrix]:
    """The images of a job and the affine between them: what the deformable stage starts from."""
    if job.size:
        return make_scene(*make_pair(job.size), ops=ops), np.eye(4)
    found = wf.register(job.fixed, job.moving, recipe="affine")
    images = wf.read_image(job.fixed), wf.read_image(job.moving)
    return make_scene(*images, ops=ops), np.asarray(found.affine.matrix)


# One iteration


class IterationTimer:
    """Durations of each iteration and of the scaled copy that follows it; passed as `progress`."""

    def __init__(self, copy: ScaleCopy, kernel_times: KernelTimes) -> None:
        self._copy, self._kernel_times = copy, kernel_times
        self.iterations: list[Span] = []
        self.copies: list[Span] = []
        self.rejected = 0
        self._since = Span.now()

    def __call__(self, event: Event) -> None:
        now = Span.now()
        if not event.accepted:  # the same iteration continues from the previous warp
            self.rejected += 1
            return
        self.iterations.append(now - self._since)
        self._kernel_times.end_iteration()
        self.copies.append(self._copy.time())
        self._since = Span.now()


class KernelTimes:
    """A backend whose kernels record the duration of each call.

    Attributes:
        seconds: For each iteration, the seconds by kernel. The second call of a kernel has the name "kernel 2".
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._calls: list[tuple[str, float]] = []
        self.seconds: list[dict[str, float]] = []

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._ops, name)
        return self._timed(name, kernel) if callable(kernel) else kernel

    def end_iteration(self) -> None:
        """Assign the calls since the last iteration to this one."""
        found: dict[str, float] = {}
        names = [name for name, _ in self._calls]
        for number, (name, seconds) in enumerate(self._calls):
            earlier = names[:number].count(name)
            found[f"{name} {earlier + 1}" if earlier else name] = seconds
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


def measure_iteration(job: SpeedJob) -> dict[str, Any]:
    """Time and memory of one optimizer with one metric.

    There are two runs in one process, after a small one that loads or compiles the kernels. The first measures the
    memory of images, warp and buffers, in excess of what the process held before they existed. The second measures
    the time, with a scaled copy of the same size after every iteration, so that other work on the machine affects
    both alike.
    """
    check_memory(job)
    ops = kernels.select("cpu", job.backend)
    _run(job, make_scene(*make_pair(SMALL), ops=ops), np.eye(4), ops, iterations=2)
    before = meter.reset_peak()
    scene, affine = _scene_of(job, ops)
    meter.reset_peak()
    _run(job, scene, affine, ops, iterations=MEMORY_ITERATIONS)
    peak = meter.peak_bytes()
    return {
        "voxels": scene.fixed.grid.voxel_count,
        "shape_zyx": list(scene.fixed.grid.shape),
        "window": window_of(job.optimizer),
        "image_bytes": sum(t.numel() * t.element_size() for t in (scene.fixed.data, scene.moving.data)),
        "peak_bytes": None if before is None or peak is None else peak - before,
        **_time(job, scene, affine, ops),
    }


def _time(job: SpeedJob, scene: Scene, affine: Matrix, ops: Ops) -> dict[str, Any]:
    voxels = scene.fixed.grid.voxel_count
    kernel_times = KernelTimes(ops)
    timer = IterationTimer(ScaleCopy(voxels), kernel_times)
    count = WARM_UP + _repetitions(job, voxels)
    _run(job, scene, affine, cast(Ops, kernel_times), iterations=count, progress=timer)
    spans, copies, calls = timer.iterations[WARM_UP:], timer.copies[WARM_UP:], kernel_times.seconds[WARM_UP:]
    middle = statistics.median_low(span.wall for span in spans)
    typical = [span.wall for span in spans].index(middle)
    return {
        "iterations": len(spans),
        "rejected": timer.rejected,
        "seconds": statistics.median(span.wall for span in spans),
        "cpu_seconds": statistics.median(span.cpu for span in spans),
        "copy_seconds": statistics.median(span.wall for span in copies),
        "copy_cpu_seconds": statistics.median(span.cpu for span in copies),
        "copies": statistics.median(s.wall / c.wall for s, c in zip(spans, copies, strict=True)),
        "copies_cpu": statistics.median(s.cpu / c.cpu for s, c in zip(spans, copies, strict=True)),
        "parts_seconds": {**calls[typical], "all else": middle - sum(calls[typical].values())},
    }


def _run(job: SpeedJob, scene: Scene, affine: Matrix, ops: Ops, *, iterations: int, progress: Any = None) -> None:
    settings = level_settings(job.optimizer, job.metric, iterations=iterations)
    run_greedy(scene, settings, ops=ops, affine=affine, watch=Watch(progress))


def _repetitions(job: SpeedJob, voxels: int) -> int:
    """Number of iterations that count; fewer where one iteration takes seconds."""
    if job.quick or job.backend == "reference":
        return 3
    return 11 if voxels <= 192**3 else 7 if voxels <= 256**3 else 5


def check_memory(job: SpeedJob) -> None:
    """Raise an InputError if the machine would run out of memory and start to swap."""
    voxels = job.size**3 if job.size else wf.read_image(job.fixed).grid.voxel_count
    available, needed = meter.available_bytes(), REQUIRED_BYTES[job.optimizer] * voxels
    needed *= REFERENCE_FACTOR if job.backend == "reference" else 1
    if available is not None and available < needed:
        raise InputError(
            f"{job.place}: {voxels} voxels need about {needed / 2**30:.0f} GB of memory, "
            f"but only {available / 2**30:.0f} GB are free."
        )


# Windows and sizes, alternating


def measure_alternating(job: SpeedJob) -> dict[str, Any]:
    """Nanoseconds per voxel and iteration by LNCC window or by image size, all in one process.

    A shared machine is slow for seconds or minutes at a time, which would favour whatever is measured at another time.
    Therefore all windows (or sizes) are measured once before any is measured again, and the minimum of each counts.
    """
    by_size = job.kind == "sizes"
    check_memory(replace(job, size=max(job.values)) if by_size else job)
    ops = kernels.select("cpu", job.backend)
    scenes = {size: make_scene(*make_pair(size), ops=ops) for size in (set(job.values) if by_size else {job.size})}
    found: dict[int, list[float]] = {value: [] for value in job.values}
    for _ in range(QUICK_ALTERNATIONS if job.quick else ALTERNATIONS[job.kind]):
        for value in job.values:
            scene, window = (scenes[value], 0) if by_size else (scenes[job.size], value)
            found[value].append(_nanoseconds_per_voxel(scene, window, ops))
    return {str(value): min(times) for value, times in found.items()}


def _nanoseconds_per_voxel(scene: Scene, window: int, ops: Ops) -> float:
    times = [time.perf_counter()]
    settings = level_settings("lm", "lncc", iterations=WARM_UP + ALTERNATION_ITERATIONS, window=window)
    watch = Watch(lambda _: times.append(time.perf_counter()))
    run_greedy(scene, settings, ops=ops, affine=np.eye(4), watch=watch)
    seconds = [after - before for before, after in itertools.pairwise(times)]
    return 1e9 * statistics.median(seconds[WARM_UP:]) / scene.fixed.grid.voxel_count

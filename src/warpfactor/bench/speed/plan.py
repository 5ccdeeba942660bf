"""Plan of the speed benchmark: one job for each number in its tables, in the order in which the jobs are run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from warpfactor.errors import InputError

METRICS = ("lncc", "mse", "mi")
# Name of an optimizer -> recipe, and the settings that are changed in it. The first three differ in the optimizer only.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lm": ("paper", {}),
    "adam": ("paper", {"deformable.optimizer": "adam"}),
    "lm+rejection": ("paper", {"deformable.damping.tolerance": 0.1, "deformable.damping.cap": 1.0}),
    # Without rejection, so that a level does not end early because no step lowers the cost.
    "default": ("default", {"deformable.damping.reject": False}),
}
SIZES = (64, 96, 128, 192, 256, 384, 512)
QUICK_SIZES = (48,)
MINIMUM_SIZE = 24
WINDOWS = (3, 5, 7, 9, 11, 13, 15)
WINDOW_SIZE = 192  # image size at which windows are compared; the largest planned size below it if it is not planned
FLAT_FROM = 128  # smallest image size for which the time per voxel is compared between sizes
REFERENCE_LIMIT = 192  # beyond this size the PyTorch kernels take more than a minute per iteration
REFERENCE_OPTIMIZERS = ("lm", "default")
GREEDY_LIMIT = 256


@dataclass(frozen=True)
class SpeedJob:
    """One measurement, made in a process of its own.

    Attributes:
        kind: What is measured: "iteration", "greedy" (one iteration of Greedy), "windows" or "sizes" (iterations with
            several windows or sizes, alternating), "start" (start-up), or "pair" (a registration from files to files).
        size: Edge length N of the synthetic N x N x N images; 0 if `fixed` and `moving` are files.
        metric: Similarity metric of the iterations, one of METRICS.
        optimizer: Optimizer of the iterations, one of OPTIMIZERS.
        values: The LNCC windows or the image sizes that are compared.
        backend: Name of the kernel backend.
        method: For pairs, the name of a recipe, or "greedy".
        fixed: Path of the fixed image.
        moving: Path of the moving image.
        threads: Number of threads.
        quick: Whether to measure fewer repetitions.
        repeat: Number of the repetition, starting at 0.
    """

    kind: str
    size: int = 0
    metric: str = ""
    optimizer: str = ""
    values: tuple[int, ...] = ()
    backend: str = ""
    method: str = ""
    fixed: str = ""
    moving: str = ""
    threads: int = 1
    quick: bool = False
    repeat: int = 0

    @property
    def key(self) -> str:
        """Hash that identifies the job; it names the file of the result."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def place(self) -> str:
        """Name of the images in tables: "192^3", or the name of the fixed image without its suffix."""
        return f"{self.size}^3" if self.size else Path(self.fixed).name.removesuffix(".gz").removesuffix(".nii")

    @property
    def label(self) -> str:
        """Short description for progress messages."""
        place = f"{self.size}^3" if self.size else Path(self.fixed).name
        values = f"{self.values[0]} to {self.values[-1]}" if self.values else ""
        backend = self.backend if self.backend == "reference" else ""
        repeat = f"repeat {self.repeat + 1}" if self.repeat else ""
        parts = (self.kind, place, self.metric, self.optimizer, values, backend, self.method, repeat)
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class SpeedPlan:
    """What the speed benchmark measures.

    Attributes:
        sizes: Edge lengths N of the synthetic N x N x N volumes.
        metrics: Similarity metrics whose iterations are measured.
        optimizers: Optimizers whose iterations are measured.
        brain: Paths of a real pair (fixed, moving), or None.
        pair_sizes: Edge lengths of synthetic pairs that are registered from files to files.
        threads: Number of threads of every measurement.
        quick: Whether to use few repetitions and to leave out the compilation.
        rounds: How many times the whole plan is measured, one round after the other.
    """

    sizes: tuple[int, ...] = SIZES
    metrics: tuple[str, ...] = METRICS
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)
    brain: tuple[Path, Path] | None = None
    pair_sizes: tuple[int, ...] = ()
    threads: int = 1
    quick: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        for what, names, known in (("metric", self.metrics, METRICS), ("optimizer", self.optimizers, OPTIMIZERS)):
            unknown = [name for name in names if name not in known]
            if unknown or not names:
                raise InputError(f"Unknown {what} {', '.join(unknown)!r}; choose from {', '.join(known)}.")
        if self.rounds < 1:
            raise InputError(f"The number of rounds must be at least 1, not {self.rounds}.")
        small = [size for size in (*self.sizes, *self.pair_sizes) if size < MINIMUM_SIZE]
        if small:
            raise InputError(f"Size {small[0]} is too small to measure; the minimum is {MINIMUM_SIZE} voxels.")

    def jobs(self) -> list[SpeedJob]:
        """All jobs. Those that are compared with each other follow each other, because the machine's speed drifts."""
        once = self._one_round()
        return [replace(job, repeat=repeat) for repeat in range(self.rounds) for job in once]

    def _one_round(self) -> list[SpeedJob]:
        found = [SpeedJob("start", threads=self.threads, quick=self.quick)]
        for size in self.sizes:
            found += self._iterations(size=size)
        if self.brain is not None:
            found += self._iterations(fixed=str(self.brain[0].absolute()), moving=str(self.brain[1].absolute()))
        found += self._alternating()
        return [*found, *self._pairs()]

    def _iterations(self, *, size: int = 0, fixed: str = "", moving: str = "") -> Iterator[SpeedJob]:
        images = SpeedJob("iteration", size=size, fixed=fixed, moving=moving, threads=self.threads, quick=self.quick)
        for metric in self.metrics:
            for optimizer in self.optimizers:
                job = replace(images, metric=metric, optimizer=optimizer)
                yield replace(job, backend="numba")
                if size <= REFERENCE_LIMIT and optimizer in REFERENCE_OPTIMIZERS:
                    yield replace(job, backend="reference")
            if size <= GREEDY_LIMIT and has_greedy():
                yield replace(images, kind="greedy", metric=metric)

    def _alternating(self) -> Iterator[SpeedJob]:
        """Comparisons of LNCC windows and of image sizes, each within one process."""
        if "lncc" not in self.metrics or "lm" not in self.optimizers:
            return
        common = SpeedJob("", metric="lncc", optimizer="lm", backend="numba", threads=self.threads, quick=self.quick)
        fitting = [size for size in self.sizes if size <= WINDOW_SIZE]
        if fitting:
            windows = WINDOWS[:: len(WINDOWS) - 1] if self.quick else WINDOWS
            yield replace(common, kind="windows", size=max(fitting), values=windows)
        large = tuple(size for size in self.sizes if size >= FLAT_FROM)
        if len(large) > 1:
            yield replace(common, kind="sizes", values=large)

    def _pairs(self) -> Iterator[SpeedJob]:
        common = SpeedJob("pair", threads=self.threads, quick=self.quick)
        if self.brain is not None:
            fixed, moving = (str(path.absolute()) for path in self.brain)
            for method in ("default", "fast", *(["greedy"] if has_greedy() else [])):
                yield replace(common, method=method, fixed=fixed, moving=moving)
        for size in self.pair_sizes:
            yield replace(common, size=size, method="default")


def has_greedy() -> bool:
    """Whether Greedy (the package picsl_greedy) is installed."""
    return importlib.util.find_spec("picsl_greedy") is not None

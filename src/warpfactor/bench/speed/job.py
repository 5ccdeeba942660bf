"""What `bench speed` measures: one job for each number in its tables, in the order in which they are run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from warpfactor.bench.speed.settings import OPTIMIZERS
from warpfactor.errors import InputError
from warpfactor.terms import METRICS

SIZES = (64, 96, 128, 192, 256, 384, 512)
QUICK_SIZES = (48,)
WINDOWS = (3, 5, 7, 9, 11, 13, 15)
WINDOW_SIZE = 192  # at which windows are compared, or the largest size below
FLAT_FROM = 128  # sizes that are compared with each other
REFERENCE_LIMIT = 192  # the plain PyTorch kernels take a minute an iteration beyond
REFERENCE_OPTIMIZERS = ("lm", "default")
GREEDY_LIMIT = 256


@dataclass(frozen=True)
class Job:
    """One measurement in a process of its own.

    Attributes:
        kind: "iteration", "greedy" (an iteration of it), "windows" or "sizes" (iterations of several, in turn),
            "start" or "pair" (end to end, from files to files).
        size: N of the N x N x N images that are made for it; 0 if `fixed` and `moving` are files.
        metric, optimizer: of iterations; the optimizer is one of OPTIMIZERS.
        values: what has its turn, LNCC windows or sizes.
        backend: kernels.
        method: of pairs, a recipe or "greedy".
        fixed, moving: files.
        threads: of the measurement.
        quick: measure less often.
        turn: which time it is measured, from 0.
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
    turn: int = 0

    @property
    def key(self) -> str:
        """Tells it apart from all others."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """For people."""
        place = f"{self.size}^3" if self.size else Path(self.fixed).name
        values = f"{self.values[0]} to {self.values[-1]}" if self.values else ""
        backend = self.backend if self.backend == "reference" else ""
        turn = f"time {self.turn + 1}" if self.turn else ""
        parts = (self.kind, place, self.metric, self.optimizer, values, backend, self.method, turn)
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        sizes: N of the N x N x N volumes.
        metrics, optimizers: of the iterations.
        brain: a real pair, fixed and moving file, or None.
        pair_sizes: N of pairs that are registered end to end.
        threads: of everything.
        quick: small sizes, few repeats, no compilation.
        rounds: how often everything is measured, one round after the other.
    """

    sizes: tuple[int, ...] = SIZES
    metrics: tuple[str, ...] = tuple(METRICS)
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
                raise InputError(f"Unknown {what} {', '.join(unknown)!r}; use some of {', '.join(known)}.")
        if self.rounds < 1:
            raise InputError(f"{self.rounds} rounds measure nothing; give one or more.")
        small = [size for size in (*self.sizes, *self.pair_sizes) if size < 24]
        if small:
            raise InputError(f"Size {small[0]} is too small to measure; give sizes of at least 24 voxels.")

    def jobs(self) -> list[Job]:
        """All jobs; what is to be compared follows each other, since machines have moods."""
        once = self._once()
        return [replace(job, turn=turn) for turn in range(self.rounds) for job in once]

    def _once(self) -> list[Job]:
        found = [Job("start", threads=self.threads, quick=self.quick)]
        for size in self.sizes:
            found += self._iterations(size=size)
        if self.brain is not None:
            found += self._iterations(fixed=str(self.brain[0].absolute()), moving=str(self.brain[1].absolute()))
        found += self._turns()
        return [*found, *self._pairs()]

    def _iterations(self, *, size: int = 0, fixed: str = "", moving: str = "") -> Iterator[Job]:
        place = {"size": size, "fixed": fixed, "moving": moving, "threads": self.threads, "quick": self.quick}
        for metric in self.metrics:
            for optimizer in self.optimizers:
                of = {"metric": metric, "optimizer": optimizer, **place}
                yield Job("iteration", backend="numba", **of)  # type: ignore[arg-type]
                if size <= REFERENCE_LIMIT and optimizer in REFERENCE_OPTIMIZERS:
                    yield Job("iteration", backend="reference", **of)  # type: ignore[arg-type]
            if size <= GREEDY_LIMIT and has_greedy():
                yield Job("greedy", metric=metric, **place)  # type: ignore[arg-type]

    def _turns(self) -> Iterator[Job]:
        if "lncc" not in self.metrics or "lm" not in self.optimizers:
            return
        of = {"metric": "lncc", "optimizer": "lm", "backend": "numba", "threads": self.threads, "quick": self.quick}
        fitting = [size for size in self.sizes if size <= WINDOW_SIZE]
        if fitting:
            windows = WINDOWS[:: len(WINDOWS) - 1] if self.quick else WINDOWS
            yield Job("windows", size=max(fitting), values=windows, **of)  # type: ignore[arg-type]
        large = tuple(size for size in self.sizes if size >= FLAT_FROM)
        if len(large) > 1:
            yield Job("sizes", values=large, **of)  # type: ignore[arg-type]

    def _pairs(self) -> Iterator[Job]:
        common = {"threads": self.threads, "quick": self.quick}
        if self.brain is not None:
            files = {"fixed": str(self.brain[0].absolute()), "moving": str(self.brain[1].absolute())}
            for method in ("default", "fast", *(["greedy"] if has_greedy() else [])):
                yield Job("pair", method=method, **files, **common)  # type: ignore[arg-type]
        for size in self.pair_sizes:
            yield Job("pair", size=size, method="default", **common)  # type: ignore[arg-type]


def has_greedy() -> bool:
    """Whether Greedy is installed."""
    return importlib.util.find_spec("picsl_greedy") is not None

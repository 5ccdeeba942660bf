"""What a stretch of a process costs: wall seconds, CPU seconds of all threads and children, memory high-water mark."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")


@dataclass
class Cost:
    """What a block took; filled when it ends.

    Attributes:
        wall_s, cpu_s: of the block.
        peak_memory_mb: most that the process has held up to the end of the block; with children, its own peak plus
            that of the largest child, which is an upper bound. NaN where the system does not tell.
        start_memory_mb: the same at the beginning: Python and the libraries it had loaded.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mb: float = float("nan")
    start_memory_mb: float = float("nan")


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure a block. The memory is only honest in a fresh process."""
    cost = Cost(start_memory_mb=peak_memory_mb())
    wall, cpu = time.perf_counter(), _cpu_s()
    yield cost
    cost.wall_s, cost.cpu_s, cost.peak_memory_mb = time.perf_counter() - wall, _cpu_s() - cpu, peak_memory_mb()


def peak_memory_mb() -> float:
    """Most memory this process held, plus the most that one of its finished children did."""
    return _own_peak_mb() + _children_peak_mb()


def _cpu_s() -> float:
    """User and system seconds of the process, its threads and its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _own_peak_mb() -> float:
    # getrusage would also count what the parent held when it started this process; the mark of the memory map does not.
    if _STATUS.exists():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return _rusage_mb("RUSAGE_SELF")


def _children_peak_mb() -> float:
    """0 without children."""
    times = os.times()
    return _rusage_mb("RUSAGE_CHILDREN") if times.children_user + times.children_system > 0 else 0.0


def _rusage_mb(whose: str) -> float:
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(getattr(resource, whose)).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)

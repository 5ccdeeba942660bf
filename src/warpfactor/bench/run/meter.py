"""Cost of a computation: wall time, processor time and memory. Linux reports all of it; other systems only parts."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_MEMORY = Path("/proc/meminfo")
_POLL_SECONDS = 0.02


@dataclass
class ResourceUse:
    """What a block of code used; the values are set when the block ends.

    Attributes:
        wall_s: Elapsed seconds.
        cpu_s: Processor seconds of all threads and child processes.
        peak_memory_mb: Peak memory of the process until the end of the block. If there are child processes, the peak
            of the largest one is added, which gives an upper bound. NaN where the system does not report it.
        start_memory_mb: Peak memory at the start of the block: Python and the libraries that were loaded.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_mb: float = float("nan")
    start_memory_mb: float = float("nan")


@contextmanager
def measured() -> Iterator[ResourceUse]:
    """Measure a block. The memory is meaningful in a fresh process only."""
    used = ResourceUse(start_memory_mb=peak_memory_mb())
    wall, cpu = time.perf_counter(), _cpu_s()
    yield used
    used.wall_s, used.cpu_s, used.peak_memory_mb = time.perf_counter() - wall, _cpu_s() - cpu, peak_memory_mb()


def peak_memory_mb() -> float:
    """Peak memory of this process plus that of its largest finished child process."""
    # getrusage would also count what the parent held when it started this process; VmHWM does not.
    own = peak_bytes()
    return (_rusage_mb("RUSAGE_SELF") if own is None else own / (1 << 20)) + _children_peak_mb()


def reset_peak() -> int | None:
    """Return free memory to the system, reset the peak, and return the bytes in use; None if not supported."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl does not have it
        if trim is not None:
            trim(0)
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    return _entry(_STATUS, "VmRSS:")


def peak_bytes() -> int | None:
    """Peak memory of this process since it started or since `reset_peak`; None if not supported."""
    return _entry(_STATUS, "VmHWM:")


def available_bytes() -> int | None:
    """Memory that processes can still allocate without swapping; None if not supported."""
    return _entry(_MEMORY, "MemAvailable:")


class PeakWatch(threading.Thread):
    """Thread that reads the peak memory of another process until that process ends.

    Attributes:
        peak_bytes: The peak; None if the system does not report it.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self.peak_bytes: int | None = None

    def run(self) -> None:
        """Poll until the process has ended."""
        while (found := _entry(self._status, "VmHWM:")) is not None:
            self.peak_bytes = found
            time.sleep(_POLL_SECONDS)


def _cpu_s() -> float:
    """User and system seconds of the process, its threads and its finished child processes."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _children_peak_mb() -> float:
    """Peak memory of the largest finished child process; 0 if there is none."""
    times = os.times()
    return _rusage_mb("RUSAGE_CHILDREN") if times.children_user + times.children_system > 0 else 0.0


def _rusage_mb(whose: str) -> float:
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(getattr(resource, whose)).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _entry(path: Path, name: str) -> int | None:
    """Bytes in a line such as "VmHWM:   1234 kB" of a file in /proc; None if there is no such file or line."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return int(lines[0].split()[1]) * 1024 if lines else None

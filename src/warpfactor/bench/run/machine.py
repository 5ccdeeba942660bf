"""The machine on which a benchmark runs: processor, memory, versions, system load, environment of child processes."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from warpfactor.registration.resources import versions

_CPUINFO = Path("/proc/cpuinfo")
_THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")


def describe() -> dict[str, str | int | float]:
    """Processor, number of cores, memory, and versions of system and packages. The host name is not included."""
    found: dict[str, str | int | float] = {"processor": _processor(), "cores": cores()}
    memory = _memory_gb()
    return {**found, **({"memory_gb": memory} if memory else {}), **versions()}


def sentence() -> str:
    """Description of the machine in one line, for the head of a page."""
    found = describe()
    memory = f", {found['memory_gb']:g} GB" if "memory_gb" in found else ""
    return (
        f"{found['processor']}, {found['cores']} cores{memory}, {platform.system()}, Python {found['python']}, "
        f"warpfactor {found['warpfactor']}"
    )


def cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """System load, averaged over the last minute; 0 where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def environment(threads: int) -> dict[str, str]:
    """Environment variables for a child process in which every library uses at most this number of threads."""
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


def _processor() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)
    except (AttributeError, ValueError, OSError):
        return None

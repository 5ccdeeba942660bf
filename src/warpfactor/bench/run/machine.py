"""The machine and the versions that figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from warpfactor.registration.resources import versions

_CPUINFO = Path("/proc/cpuinfo")


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory, system and versions, as plain data; no name of the machine."""
    found: dict[str, str | int | float] = {"processor": _processor(), "cores": cores()}
    memory = _memory_gb()
    return {**found, **({"memory_gb": memory} if memory else {}), **versions()}


def sentence() -> str:
    """One line for the head of a table."""
    found = describe()
    memory = f", {found['memory_gb']:g} GB" if "memory_gb" in found else ""
    return (
        f"{found['processor']}, {found['cores']} cores{memory}, {platform.system()}, Python {found['python']}, "
        f"warpfactor {found['warpfactor']}"
    )


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def load() -> float:
    """Processes that wanted a processor in the last minute, on average; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def environment(threads: int) -> dict[str, str]:
    """The environment of a process in which every library keeps to its threads, from its import on."""
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}

"""Memory of this process: what it holds now, and the most it held since a mark was set. Linux tells; others do not."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_AVAILABLE = Path("/proc/meminfo")


def settle() -> int | None:
    """Give back what is free, set the mark to now, and return the bytes held; None where the system does not tell."""
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return None
    return _entry(_STATUS, "VmRSS:")


def peak() -> int | None:
    """Most bytes held since `settle`."""
    return _entry(_STATUS, "VmHWM:")


def available() -> int | None:
    """Bytes that processes can still get without swapping."""
    return _entry(_AVAILABLE, "MemAvailable:")


def _entry(path: Path, name: str) -> int | None:
    if not path.exists():
        return None
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None

"""How much memory is left, and refusals before a request for more than that."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpfactor.errors import InputError, OutOfMemoryError

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_MB = 1 << 20
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_SIGNS = ("can't allocate memory", "out of memory", "not enough memory")  # how PyTorch says so
_NO_ROOM = "failed to map segment"  # how the loader of libraries does


def available_bytes() -> int | None:
    """Bytes that this process can still allocate; None where the system does not tell.

    It is the least of the machine's free memory and swap, and of what the process's control group (a container or a job
    of a scheduler) leaves.
    """
    known = [found for found in (_machine_bytes(), _group_bytes()) if found is not None]
    return min(known) if known else None


def parse_bytes(text: str) -> int:
    """A number of bytes from a text such as "4 GB", "500MiB" or "2e9"."""
    found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"{text!r} is not an amount of memory; write for instance 4GB.")
    return int(float(found[1]) * _UNITS[found[2]])


def limit_bytes(limit: str | float) -> int:
    """A limit of memory in bytes, from a text or a number."""
    found = parse_bytes(limit) if isinstance(limit, str) else int(limit)
    if found < 1:
        raise InputError(f"A memory limit of {limit} bytes is not valid; write for instance 8GB.")
    return found


def shown_bytes(count: float) -> str:
    """An amount of memory for people, in the units that `parse_bytes` reads."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"


def used_bytes() -> int:
    """Memory that this process has now; its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * int(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return peak_bytes() or 0


def peak_bytes() -> int | None:
    """The most memory that this process had so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) << 10


def check_memory(needed_bytes: int, what: str, *, remedy: str) -> None:
    """Raise an OutOfMemoryError if more memory is needed than there is.

    Args:
        needed_bytes: an estimate from below.
        what: the subject of the message, such as a path.
        remedy: what to do about it.
    """
    available = available_bytes()
    if available is not None and needed_bytes > available:
        needed, left = shown_bytes(needed_bytes), shown_bytes(available)
        raise OutOfMemoryError(f"{what} needs about {needed} of memory and {left} are available; {remedy}.")


@contextmanager
def memory_errors(remedy: str) -> Iterator[None]:
    """Turn every way in which memory can run out inside the block into an OutOfMemoryError.

    PyTorch raises a RuntimeError, whose message names lines of its source, and a library without room to be loaded is
    an ImportError.
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if not _is_memory(error):
            raise
        raise OutOfMemoryError(f"Out of memory; {remedy}.") from error


def _is_memory(error: Exception) -> bool:
    if isinstance(error, ImportError):
        return _NO_ROOM in str(error) and "permitted" not in str(error)  # as it is on a file system without programs
    if isinstance(error, RuntimeError):
        return any(sign in str(error) for sign in _SIGNS)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def _machine_bytes() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return _physical_bytes()
    entries = dict(line.split(":", 1) for line in lines if ":" in line)
    wanted = [entries[name] for name in ("MemAvailable", "SwapFree") if name in entries]
    return sum(int(entry.split()[0]) for entry in wanted) * 1024 if wanted else _physical_bytes()


def _physical_bytes() -> int | None:
    """All memory of the machine, where what is free of it is not known."""
    try:
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return None


def _group_bytes() -> int | None:
    """What the control group (version 2) of this process leaves; None without a limit."""
    try:
        place = next(line[3:] for line in _GROUP.read_text().splitlines() if line.startswith("0::"))
        folder = _GROUPS / place.lstrip("/")
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        entries = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError, StopIteration):  # "max" is no number
        return None
    return max(0, limit - used + int(entries.get("inactive_file", 0)))

"""Processes of a benchmark: ending one with all that it started, and keeping two benchmarks off the same run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PATIENCE_S = 0.2  # between two looks at a run that another process makes


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process that leads a session of its own, and its children with it."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


@contextmanager
def claimed(what: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Keep other processes from making the same thing meanwhile; waits while one of them makes it.

    A claim ends with its process, however that ends. Where the system or the disk knows no locks there are no claims.

    Args:
        what: a name in a folder that they share.
        stopped: asked while waiting; what follows goes on without the claim if it is true.
    """
    place = what.with_name(f".{what.name}.lock")
    descriptor = _take(place)
    while descriptor is None and not stopped():
        time.sleep(_PATIENCE_S)
        descriptor = _take(place)
    try:
        yield
    finally:
        if descriptor is not None and descriptor >= 0:
            place.unlink(missing_ok=True)
            os.close(descriptor)


def _take(place: Path) -> int | None:
    """Descriptor of a locked file; None if another process has it, -1 if there are no locks here."""
    try:
        import fcntl
    except ImportError:  # Windows
        return -1
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, place):
            return descriptor
    except BlockingIOError:
        pass
    except OSError:  # a network disk without locks
        os.close(descriptor)
        return -1
    os.close(descriptor)
    return None


def _is_at(descriptor: int, place: Path) -> bool:
    """Whether the open file is still the one at its place: its last owner may just have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), place.stat())
    return False

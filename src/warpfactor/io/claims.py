"""Claims: of several processes, on one machine or on a shared file system, only one does a piece of work at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.2  # while waiting for work that another process does


@contextmanager
def claimed(what: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock that other processes respect; wait while another process holds it.

    The lock is released when its process ends, for whatever reason. Where the system or the file system does not
    support locks, the block runs without one.

    Args:
        what: Path that identifies the work, in a folder that the processes share.
        stopped: Called repeatedly while waiting; if it returns True, the block runs without the lock.
    """
    place = what.with_name(f".{what.name}.lock")
    descriptor = _take(place)
    while descriptor is None and not stopped():
        time.sleep(_POLL_SECONDS)
        descriptor = _take(place)
    try:
        yield
    finally:
        if descriptor is not None and descriptor >= 0:
            place.unlink(missing_ok=True)
            os.close(descriptor)


def _take(place: Path) -> int | None:
    """Descriptor of the locked file; None if another process holds the lock, -1 if locks are not supported."""
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
    except OSError:  # a network file system without locks
        os.close(descriptor)
        return -1
    os.close(descriptor)
    return None


def _is_at(descriptor: int, place: Path) -> bool:
    """Whether the open file still exists under its name; the previous holder may just have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), place.stat())
    return False

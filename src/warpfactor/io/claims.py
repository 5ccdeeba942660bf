"""Claims: of several processes, on one machine or on a shared file system, only one does a piece of work at a time.

A lock is released when its process ends, for whatever reason. Where the system or the file system does not support
locks, work is done without one.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warpfactor.errors import FileError, FolderInUseError
from warpfactor.processes import renew_after_fork

_POLL_SECONDS = 0.2  # while waiting for work that another process does
_NO_LOCKS = -1
_FULL = (errno.ENOSPC, errno.EDQUOT)
_held: dict[Path, int] = {}  # what this process holds, and which of its threads does
_registry = threading.Lock()
renew_after_fork(_registry)


@contextmanager
def claimed(what: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock that other processes respect; wait while another process holds it.

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


@contextmanager
def sole(what: Path) -> Iterator[bool]:
    """Be the only one who writes a file or folder; FileError at once if another process or thread does.

    A thread that holds the lock already may enter again.

    Args:
        what: absolute path of the file or folder, whose parent exists.

    Yields:
        Whether there is a lock: without one, others may be writing too.
    """
    place = what.with_name(f".{what.name}.lock")
    with _registry:
        holder = _held.get(place)
        if holder == threading.get_ident():
            descriptor = None
        else:
            try:
                descriptor = None if holder is not None else _take(place)
            except OSError as error:
                raise FileError(f"{what}: cannot be written ({error.strerror or error}).") from error
            if descriptor is None:
                raise FolderInUseError(f"{what}: another run is writing there; wait for it, or choose another name.")
            _held[place] = threading.get_ident()
    try:
        yield descriptor != _NO_LOCKS
    finally:
        if descriptor is not None:
            _release(place, descriptor)


def _release(place: Path, descriptor: int) -> None:
    with _registry:
        _held.pop(place, None)
        if descriptor >= 0:
            with suppress(OSError):  # its folder was removed or renamed
                place.unlink(missing_ok=True)
            os.close(descriptor)


def _take(place: Path) -> int | None:
    """Descriptor of the locked file; None if another process holds the lock, -1 if locks are not supported."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _NO_LOCKS
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:  # a folder that cannot be written; whoever writes there says so
        if error.errno in _FULL:  # room may come back while others hold their locks
            raise
        return _NO_LOCKS
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, place):
            return descriptor
    except BlockingIOError:
        pass
    except OSError:  # a network file system without locks
        os.close(descriptor)
        return _NO_LOCKS
    os.close(descriptor)
    return None


def _is_at(descriptor: int, place: Path) -> bool:
    """Whether the open file still exists under its name; the previous holder may just have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), place.stat())
    return False

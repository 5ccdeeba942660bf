"""A folder in the place of another one, at a single moment where the system can do that."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_SWAP = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
_HERE = -100  # AT_FDCWD: paths are as they are given
_NOT_THERE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # the system or the file system cannot exchange
_FIXED = (errno.EBUSY, errno.EXDEV)  # a mount point has to stay where it is


def replace_folder(new: Path, place: Path, own: Sequence[str]) -> None:
    """Put the folder `new` in the place of another one, if there is one; what others have in that is taken over.

    A process that is killed in the middle leaves the old folder or the new one, never files of both. Where names cannot
    be exchanged it may leave neither; the old one then lies beside, and the next run puts it back. A folder that has to
    stay, as a mount point or the working directory does, gets the new files one by one, and its mark of completeness
    last.

    Args:
        own: names of files that are not taken over; the last one marks a complete folder.
    """
    if not place.exists():
        new.replace(place)
        return
    if _is_working_folder(place):
        _refill(new, place, own)
        return
    _take_over(place, new, own)
    try:
        if not _exchange(new, place):
            _set_aside(new, place)
    except OSError as error:
        if error.errno not in _FIXED:
            raise
        _refill(new, place, own)
        return
    shutil.rmtree(new, ignore_errors=True)  # which is the old one now


def _is_working_folder(place: Path) -> bool:
    with suppress(OSError):
        return place in (Path.cwd(), *Path.cwd().parents)
    return False


def _take_over(old: Path, new: Path, own: Sequence[str]) -> None:
    """Link the files of others into the new folder; they are copied where links are not possible."""
    with suppress(OSError):
        shutil.copymode(old, new)
    for entry in old.iterdir():
        goal = new / entry.name
        if entry.name in own or os.path.lexists(goal):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, goal, symlinks=True, copy_function=_linked)
        elif entry.is_symlink():
            goal.symlink_to(entry.readlink())
        else:
            _linked(str(entry), str(goal))


def _linked(source: str, goal: str) -> str:
    try:
        os.link(source, goal)
    except OSError:
        shutil.copy2(source, goal)
    return goal


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders at one moment; False where that is not possible."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        if sys.platform == "darwin":
            failed = library.renamex_np(*names, _SWAP)
        else:
            failed = library.renameat2(_HERE, names[0], _HERE, names[1], _SWAP)
    except (AttributeError, OSError, TypeError):  # no such function, as on Windows
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _NOT_THERE:
        return False
    raise OSError(code, os.strerror(code))


def _set_aside(new: Path, place: Path) -> None:
    """Put one folder in the place of another in two steps; the old one then has the name of the new one."""
    aside = place.with_name(f".{secrets.token_hex(4)}-old-{place.name}")
    place.replace(aside)
    try:
        new.replace(place)
    except OSError:
        aside.replace(place)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _refill(source: Path, target: Path, own: Sequence[str]) -> None:
    """Move files one by one; the mark of a complete folder goes first and comes last."""
    rank = {name: number for number, name in enumerate(own)}
    for name in reversed(own):
        if (target / name).is_file():
            (target / name).unlink()
    for entry in sorted(source.iterdir(), key=lambda each: rank.get(each.name, -1)):
        goal = target / entry.name
        if goal.is_dir() and not goal.is_symlink():
            shutil.rmtree(goal)
        if not (goal.exists() and goal.samefile(entry)):  # a file of others, linked into both
            shutil.move(entry, goal)
    shutil.rmtree(source, ignore_errors=True)

"""Atomic writing: files and folders appear complete or not at all.

They are written under a temporary name beside their final place, and renamed at the end.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from warpfactor.errors import FileError
from warpfactor.io.claims import sole
from warpfactor.io.exchange import replace_folder

_log = logging.getLogger(__name__)
_ABANDONED_SECONDS = 24 * 3600


@contextmanager
def atomic_path(path: str | Path, *, force: bool = False, need_bytes: int = 0) -> Iterator[Path]:
    """Yield a temporary path to write to, which becomes `path` if the block succeeds and is removed if it fails.

    Args:
        path: of the final file; its folder is created if it is missing.
        force: replace an existing file instead of refusing.
        need_bytes: refuse at once if the disk has less free space.
    """
    final = Path(path)
    check_free(final, force=force)
    made = _make_folder(final.parent)
    # The whole name stays at the end, because readers and writers go by the suffix.
    temporary = final.with_name(f"{_prefix()}{final.name}")
    try:
        with sole(final.absolute()) as locked:
            _remove_leftovers(final.absolute(), locked=locked)
            _check_space(final, need_bytes)
            try:
                yield temporary
                temporary.replace(final)
            except BaseException:
                _discard(temporary)
                raise
    except BaseException as error:
        _remove_empty(made)
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
        raise


@contextmanager
def reserved_folder(path: str | Path, *, force: bool) -> Iterator[None]:
    """Refuse a folder that cannot be written to, and keep other runs from writing to it during the block.

    Args:
        path: of the folder; its parents are created if they are missing, and removed at the end if they are empty.
        force: whether a folder that is not empty may be replaced.
    """
    final = Path(path)
    check_folder(final, force=force)
    place = _real(final)
    made = _make_folder(place.parent)
    try:
        with sole(place) as locked:
            _remove_leftovers(place, locked=locked)
            check_folder(final, force=force)  # another run may just have finished
            yield
    finally:
        _remove_empty(made)


@contextmanager
def atomic_folder(path: str | Path, *, force: bool = False, own: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder to write into, which becomes `path` if the block succeeds and is removed if it fails.

    A folder that exists already is replaced as a whole, by one exchange of names where the system has it; the files
    that others put into it are taken over.

    Args:
        path: of the final folder; its parents are created if they are missing.
        force: replace an existing folder instead of refusing one that is not empty.
        own: names of files that an earlier run of the same kind may have left, which are not taken over; the last one
            marks a complete folder.
    """
    final = Path(path)
    place = _real(final)
    temporary = place.with_name(f"{_prefix()}{place.name}")
    with reserved_folder(final, force=force):
        try:
            temporary.mkdir()
            yield temporary
            replace_folder(temporary, place, own)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError):
                raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
            if isinstance(error, FileError) and str(temporary) in str(error):
                raise type(error)(str(error).replace(str(temporary), str(final))) from error
            raise


def check_free(path: str | Path, *, force: bool) -> None:
    """Raise a FileError if the file cannot be written; ask before long computations.

    It cannot if `path` is a folder, if it exists and `force` is off, or if its folder is not writable.
    """
    final = Path(path)
    if final.suffix == ".zarr":  # the only image format that is a folder
        return check_folder(final, force=force)
    if final.is_dir():
        raise FileError(f"{final}: is a folder; give the name of a file.")
    if final.exists() and not force:
        raise FileError(
            f"{final}: exists already; remove it, choose another name, or replace it with --force (force=True)."
        )
    return _check_place(final)


def check_folder(path: str | Path, *, force: bool) -> None:
    """Raise a FileError if results cannot be written into a folder of that name; ask before long computations."""
    final = Path(path)
    if final.exists() and not final.is_dir():
        raise FileError(f"{final}: is a file; give the name of a folder.")
    if final.is_dir() and any(final.iterdir()) and not force:
        raise FileError(
            f"{final}: the folder is not empty; choose another one, or replace it with --force (force=True)."
        )
    _check_place(final)
    if final.is_dir():
        _check_writable(final, final)


def _check_place(path: Path) -> None:
    place = next(folder for folder in path.absolute().parents if folder.exists())
    if not place.is_dir():
        raise FileError(f"{path}: cannot be created, because {place} is a file; choose another folder.")
    _check_writable(place, path)


def _check_writable(place: Path, path: Path) -> None:
    """Raise a FileError about `path` if nothing can be created in the folder `place`."""
    trial = place / f"{_prefix()}trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise FileError(
            f"{path}: cannot be created, because {place} is not writable ({reason}); choose another one."
        ) from error


def _check_space(path: Path, need_bytes: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < need_bytes:
        raise FileError(
            f"{path}: the disk has {free >> 20} MB left, but {need_bytes >> 20} MB are needed; free some space."
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _prefix() -> str:
    """A prefix that hides a temporary file or folder and that no other process uses."""
    return f".{secrets.token_hex(4)}-"


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder with its parents and return what had to be created, innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be created ({error.strerror or error}).") from error
    return missing


def _discard(path: Path) -> None:
    """Remove a file and free its space at once, even if a writer that failed has left it open, as ITK's TIFF does."""
    with suppress(OSError):  # it was never made
        os.truncate(path, 0)
    path.unlink(missing_ok=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # another process has put something there
        for folder in folders:
            folder.rmdir()


def _real(path: Path) -> Path:
    """Where a folder is; a link to it is followed, so that what is replaced is the folder and not the link."""
    return path.resolve() if path.is_symlink() else path.absolute()


def _remove_leftovers(place: Path, *, locked: bool) -> None:
    """Remove temporary files and folders of runs that were killed, and put back a folder that one had set aside.

    Args:
        place: the final file or folder.
        locked: nobody else writes it, so that what is left is of nobody; otherwise only what is a day old is removed.
    """
    left = re.compile(rf"\.[0-9a-f]{{8}}-(?P<old>old-)?{re.escape(place.name)}")
    with suppress(OSError):
        for entry in list(place.parent.iterdir()):
            found = left.fullmatch(entry.name)
            if found is None or not (locked or time.time() - entry.lstat().st_mtime > _ABANDONED_SECONDS):
                continue
            _log.info("removing %s, which a killed run left behind", entry)
            if found["old"] and not place.exists():
                entry.replace(place)
            elif entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

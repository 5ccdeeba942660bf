"""Files appear complete or not at all: write under a temporary name in the same folder, then rename."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpfactor.errors import FileError


@contextmanager
def atomic_path(path: str | Path, *, force: bool = False, need_bytes: int = 0) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` when the block ends well and vanishes when it does not.

    Args:
        path: of the file in the end; its folder is made if missing.
        force: replace an existing file instead of refusing.
        need_bytes: refuse at once if the disk has less room.
    """
    final = Path(path)
    check_free(final, force=force)
    made = _make_folder(final.parent)
    # The whole name stays at the end: readers and writers go by the suffix.
    temporary = final.with_name(f".{secrets.token_hex(4)}-{final.name}")
    try:
        _check_room(final, need_bytes)
        yield temporary
        temporary.replace(final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        for folder in made:
            folder.rmdir()
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
        raise


def check_free(path: str | Path, *, force: bool) -> None:
    """FileError if `path` is a folder, or exists and `force` is off; to be asked before hours of work."""
    final = Path(path)
    if final.is_dir():
        raise FileError(f"{final}: is a folder; give the name of a file.")
    if final.exists() and not force:
        raise FileError(f"{final}: exists already; remove it, choose another name, or overwrite it with force=True.")


def _make_folder(folder: Path) -> list[Path]:
    """Make `folder` and return what had to be made, innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be made ({error.strerror or error}).") from error
    if not os.access(folder, os.W_OK):
        raise FileError(f"{folder}: the folder is not writable; choose another one.")
    return missing


def _check_room(path: Path, need_bytes: int) -> None:
    room = shutil.disk_usage(path.parent).free
    if room < need_bytes:
        raise FileError(f"{path}: the disk has {room >> 20} MB left, {need_bytes >> 20} MB are needed; free some.")

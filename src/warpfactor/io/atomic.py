"""Files appear complete or not at all: write under a temporary name in the same folder, then rename."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from warpfactor.errors import FileError


@contextlib.contextmanager
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
            with contextlib.suppress(OSError):  # somebody else has put a file there
                folder.rmdir()
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
        raise


def check_free(path: str | Path, *, force: bool) -> None:
    """FileError if `path` is a folder, exists while `force` is off, or cannot be made; ask before hours of work."""
    final = Path(path)
    if final.is_dir():
        raise FileError(f"{final}: is a folder; give the name of a file.")
    if final.exists() and not force:
        raise FileError(f"{final}: exists already; remove it, choose another name, or overwrite it with force=True (--force).")
    check_place(final)


def check_place(path: Path) -> None:
    """FileError if nothing can be made where `path` is to be: something is made, and removed again."""
    place = next(folder for folder in path.absolute().parents if folder.exists())
    if not place.is_dir():
        raise FileError(f"{path}: cannot be made, {place} is a file.")
    check_writable(place, path)


def check_writable(place: Path, path: Path) -> None:
    """FileError about `path` if nothing can be made in the folder `place`."""
    trial = place / f".{secrets.token_hex(4)}-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"{path}: cannot be made, {place} is not writable ({reason}); choose another one.") from error


def _make_folder(folder: Path) -> list[Path]:
    """Make `folder` and return what had to be made, innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be made ({error.strerror or error}).") from error
    return missing


def _check_room(path: Path, need_bytes: int) -> None:
    room = shutil.disk_usage(path.parent).free
    if room < need_bytes:
        raise FileError(f"{path}: the disk has {room >> 20} MB left, {need_bytes >> 20} MB are needed; free some.")

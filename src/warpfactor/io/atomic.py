"""Atomic writing: files and folders appear complete or not at all.

They are written under a temporary name beside their final place, and renamed at the end.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from warpfactor.errors import FileError


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
        _check_space(final, need_bytes)
        yield temporary
        temporary.replace(final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _remove_empty(made)
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
        raise


@contextmanager
def atomic_folder(path: str | Path, *, force: bool = False, own: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder to write into, which becomes `path` if the block succeeds and is removed if it fails.

    A folder that exists already keeps the files that others put into it. Its other files are replaced one by one, each
    of them complete, in the order of `own`; files of `own` that were not written again are removed.

    Args:
        path: of the final folder; its parents are created if they are missing.
        force: replace earlier files in an existing folder instead of refusing a folder that is not empty.
        own: names of files that an earlier run of the same kind may have left; the last one is replaced last.
    """
    final = Path(path)
    check_folder(final, force=force)
    place = final.absolute()
    made = _make_folder(place.parent)
    temporary = place.with_name(f"{_prefix()}{place.name}")
    try:
        temporary.mkdir()
        yield temporary
        if final.exists():  # even an empty folder may be the working directory of a process, so it is kept
            _refill(temporary, final, own)
        else:
            temporary.replace(place)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove_empty(made)
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
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
        raise FileError(f"{path}: cannot be made, {place} is a file; choose another folder.")
    _check_writable(place, path)


def _check_writable(place: Path, path: Path) -> None:
    """Raise a FileError about `path` if nothing can be created in the folder `place`."""
    trial = place / f"{_prefix()}trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"{path}: cannot be made, {place} is not writable ({reason}); choose another one.") from error


def _check_space(path: Path, need_bytes: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < need_bytes:
        raise FileError(
            f"{path}: the disk has {free >> 20} MB left, {need_bytes >> 20} MB are needed; free some space."
        )


def _prefix() -> str:
    """A prefix that hides a temporary file or folder and that no other process uses."""
    return f".{secrets.token_hex(4)}-"


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder with its parents and return what had to be created, innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be made ({error.strerror or error}).") from error
    return missing


def _remove_empty(folders: Sequence[Path]) -> None:
    with suppress(OSError):  # another process has put something there
        for folder in folders:
            folder.rmdir()


def _refill(source: Path, target: Path, own: Sequence[str]) -> None:
    rank = {name: number for number, name in enumerate(own)}
    written = sorted(source.iterdir(), key=lambda entry: rank.get(entry.name, -1))
    for name in own:
        if not (source / name).exists() and (target / name).is_file():
            (target / name).unlink()
    for entry in written:
        goal = target / entry.name
        if goal.is_dir() and not goal.is_symlink():
            shutil.rmtree(goal)
        entry.replace(goal)
    source.rmdir()

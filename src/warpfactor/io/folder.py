"""Folders appear complete or not at all: write into a temporary sibling, then rename."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from warpfactor.errors import FileError
from warpfactor.io.atomic import check_place, check_writable


@contextmanager
def atomic_folder(path: str | Path, *, force: bool = False, own: Sequence[str] = ()) -> Iterator[Path]:
    """A temporary folder to write into; it becomes `path` when the block ends well and vanishes when it does not.

    A folder that is there already keeps what others put into it: its files are replaced one by one, each whole, in
    the order of `own`, and those of `own` that were not written again are removed.

    Args:
        path: of the folder in the end; its parents are made if missing.
        force: replace earlier files in an existing folder instead of refusing one that is not empty.
        own: names that may be in the folder from an earlier run of the same kind, the one to write last at the end.
    """
    final = Path(path)
    check_folder(final, force=force)
    made = _make_parents(final)
    temporary = final.absolute().with_name(f".{secrets.token_hex(4)}-{final.absolute().name}")
    try:
        temporary.mkdir()
        yield temporary
        if final.exists():  # even an empty folder may be somebody's working directory, so it stays the same one
            _refill(temporary, final, own)
        else:
            temporary.replace(final.absolute())
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):  # others may have put something there
            for folder in made:
                folder.rmdir()
        if isinstance(error, OSError):
            raise FileError(f"{final}: cannot be written ({error.strerror or error}).") from error
        raise


def check_folder(path: str | Path, *, force: bool) -> None:
    """FileError if `path` cannot become a folder of results; to be asked before hours of work."""
    final = Path(path)
    if final.exists() and not final.is_dir():
        raise FileError(f"{final}: is a file; give the name of a folder.")
    if final.is_dir() and any(final.iterdir()) and not force:
        raise FileError(f"{final}: the folder is not empty; choose another one, or overwrite it with force=True (--force).")
    check_place(final)
    if final.is_dir():
        check_writable(final, final)


def _make_parents(final: Path) -> list[Path]:
    """Make the folders above `final` and return what had to be made, innermost first."""
    missing = [place for place in final.absolute().parents if not place.exists()]
    try:
        final.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{final}: the folder cannot be made ({error.strerror or error}).") from error
    return missing


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

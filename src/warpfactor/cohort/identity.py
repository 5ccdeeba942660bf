"""What a result was made of: a hash of its input files, recipe, options and version, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from warpfactor import __version__
from warpfactor.cohort.table.row import CohortRow
from warpfactor.io.jsontext import without_nan
from warpfactor.registration.provenance import file_sha256

_SHOWN = 3  # changed settings that are named


@dataclass(frozen=True)
class FilePrint:
    """A file and its content.

    Attributes:
        path: absolute.
        size_bytes, modified_ns: reveal most changes without reading the file.
        digest: SHA-256 of the content.
    """

    path: str
    size_bytes: int
    modified_ns: int
    digest: str


@dataclass(frozen=True)
class Identity:
    """Everything that decides a result.

    Attributes:
        version: of warpfactor.
        recipe: as plain data.
        options: further arguments of the registration, as plain data.
        files: input files by column.
    """

    version: str
    recipe: Mapping[str, Any]
    options: Mapping[str, Any]
    files: Mapping[str, tuple[FilePrint, ...]]

    @property
    def key(self) -> str:
        """The hash. Where the files are does not matter, only what is in them."""
        contents = {column: [each.digest for each in prints] for column, prints in self.files.items()}
        parts = [self.version, self.recipe, self.options, contents]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The identity as `result.json` stores it; the recipe stands there already."""
        files = {column: [vars(each) for each in prints] for column, prints in self.files.items()}
        asked = dict(self.recipe)
        return {
            "key": self.key,
            "version": self.version,
            "recipe": asked,
            "options": dict(self.options),
            "files": files,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Identity | None:
        """Inverse of `to_dict`; None if the data are of something else."""
        try:
            files = {column: tuple(FilePrint(**each) for each in prints) for column, prints in data["files"].items()}
            return cls(data["version"], data["recipe"], data["options"], files)
        except (KeyError, TypeError, AttributeError):
            return None


def identify(
    row: CohortRow, recipe: Mapping[str, Any], options: Mapping[str, Any], known: Identity | None = None
) -> Identity:
    """The identity of a row now.

    Args:
        row: the row.
        recipe: its recipe as plain data.
        options: further arguments of the registration.
        known: an earlier identity; a file whose place, size and time are as they were is not read again.
    """
    seen = (
        {} if known is None else {(f.path, f.size_bytes, f.modified_ns): f for fs in known.files.values() for f in fs}
    )
    files: dict[str, tuple[FilePrint, ...]] = {}
    for column, path in row.files():
        files[column] = (*files.get(column, ()), _print_of(path, seen))
    plain = json.loads(json.dumps(without_nan(recipe), default=str))  # as it is read back
    return Identity(__version__, plain, dict(options), files)


def differences(old: Identity, new: Identity) -> Iterator[str]:
    """Why a result has to be made again, in a few words each."""
    if old.version != new.version:
        yield f"version {old.version} -> {new.version}"
    changed = list(_changed("", old.recipe, new.recipe))
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        yield f"recipe changed: {', '.join(changed[:_SHOWN])}{more}"
    yield from (f"option {text}" for text in _changed("", old.options, new.options))
    for column in dict.fromkeys([*old.files, *new.files]):
        before, after = (tuple(f.digest for f in side.files.get(column, ())) for side in (old, new))
        if before != after:
            how = "added" if not before else "removed" if not after else "changed"
            yield f"{column} {how}"


def _changed(name: str, old: Any, new: Any) -> Iterator[str]:
    """Names of the settings in which two trees of plain data differ, with both values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            yield from _changed(f"{name}.{key}".lstrip("."), old.get(key), new.get(key))
    elif old != new:
        yield f"{name} {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 30 else f"{text[:27]}..."


def _print_of(path: Path, seen: Mapping[tuple[str, int, int], FilePrint]) -> FilePrint:
    place = path.absolute()
    found = place.stat()
    key = (str(place), found.st_size, found.st_mtime_ns)
    return seen.get(key) or FilePrint(*key, _digest(*key))


@lru_cache(maxsize=1024)
def _digest(path: str, size_bytes: int, modified_ns: int) -> str:
    """SHA-256 of a file, or of all files of a folder; size and time are there so that a changed file is read again."""
    del size_bytes, modified_ns
    return file_sha256(Path(path)) or ""

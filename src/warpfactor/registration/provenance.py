"""Whether the files that a result names are still those it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.checks.inputs import IMAGE_CHANGED
from warpfactor.errors import Notice
from warpfactor.io.digest import file_sha256

INPUTS = ("fixed", "moving", "fixed_mask", "moving_mask")


def recorded(path: Path) -> dict[str, Any]:
    """What result.json keeps of an input file besides its place."""
    found = path.stat()
    return {"sha256": file_sha256(path), "size_bytes": found.st_size, "modified_ns": found.st_mtime_ns}


def input_paths(entries: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Where an input may be; relative to the folder first, so that results and images can be moved together."""
    entry = _entry(entries, name)
    relative, absolute = entry.get("path_from_result"), entry.get("path")
    places = [folder / relative] if isinstance(relative, str) and relative else []
    return [*places, *([Path(absolute)] if isinstance(absolute, str) and absolute else [])]


def change_of(entries: Mapping[str, Any], name: str, path: Path) -> Notice | None:
    """A notice if a file does not have the content that the input of that name had; None if nothing is recorded.

    A file of the same size and time is not read.
    """
    entry = _entry(entries, name)
    known = entry.get("sha256")
    try:
        found = path.stat()
        if not known or (entry.get("size_bytes"), entry.get("modified_ns")) == (found.st_size, found.st_mtime_ns):
            return None
        same = file_sha256(path) == known
    except OSError:
        return None
    return None if same else Notice(IMAGE_CHANGED, {"side": name.replace("_", " "), "path": str(path)})


def changes(entries: Mapping[str, Any], folder: Path) -> list[Notice]:
    """Notices of all inputs of a result whose files have another content now."""
    found = []
    for name in INPUTS:
        places = [path for path in input_paths(entries, folder, name) if path.is_file()]
        notice = change_of(entries, name, places[0]) if places else None
        found += [] if notice is None else [notice]
    return found


def _entry(entries: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inputs = entries.get("inputs")
    entry = inputs.get(name) if isinstance(inputs, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}

"""Whether the files that a result names are still those it was made of, and its verdict one about these files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.checks.inputs import IMAGE_CHANGED
from warpfactor.checks.limits import limits_digest
from warpfactor.errors import Notice
from warpfactor.io.digest import file_sha256
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP
from warpfactor.show.report.summary import REPORT
from warpfactor.show.verdict import Verdict

JUDGED = (ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP, REPORT)  # files of a folder that its verdict is about
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
    if not entry.get("sha256") or _is_same(entry, path):
        return None
    return Notice(IMAGE_CHANGED, {"side": name.replace("_", " "), "path": str(path)})


def verdict_entry(verdict: Verdict, folder: Path) -> dict[str, Any]:
    """The verdict as result.json keeps it: with the limits and the files of the folder that it is about."""
    files = {name: recorded(folder / name) for name in JUDGED if (folder / name).is_file()}
    return {**verdict.to_dict(), "judged": {"limits": limits_digest(), "files": files}}


def verdict_stands(entries: Mapping[str, Any], folder: Path) -> bool:
    """Whether the verdict of a result is about the files that are there now, by the limits of today."""
    verdict = entries.get("verdict")
    judged = verdict.get("judged") if isinstance(verdict, Mapping) else None
    files = judged.get("files") if isinstance(judged, Mapping) else None
    if not isinstance(files, Mapping) or not isinstance(judged, Mapping) or judged.get("limits") != limits_digest():
        return False
    there = {name for name in JUDGED if (folder / name).is_file()}
    return there == set(files) and all(_is_same(files[name], folder / name) for name in there)


def changes(entries: Mapping[str, Any], folder: Path) -> list[Notice]:
    """Notices of all inputs of a result whose files have another content now."""
    found = []
    for name in INPUTS:
        places = [path for path in input_paths(entries, folder, name) if path.is_file()]
        notice = change_of(entries, name, places[0]) if places else None
        found += [] if notice is None else [notice]
    return found


def _is_same(entry: Any, path: Path) -> bool:
    """Whether a file is the recorded one; a file of the same size and time is not read, one that cannot be is taken."""
    if not isinstance(entry, Mapping):
        return False
    try:
        found = path.stat()
        if (entry.get("size_bytes"), entry.get("modified_ns")) == (found.st_size, found.st_mtime_ns):
            return True
        return file_sha256(path) == entry.get("sha256")
    except OSError:
        return True


def _entry(entries: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inputs = entries.get("inputs")
    entry = inputs.get(name) if isinstance(inputs, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}

"""Whether the files that a result names are still those it was made of, and its verdict one about these files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.checks.inputs import IMAGE_CHANGED, TRANSFORM_CHANGED
from warpfactor.checks.limits import limits_digest
from warpfactor.errors import Notice
from warpfactor.io.jsontext import without_nan
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP
from warpfactor.show.report.summary import REPORT
from warpfactor.show.verdict import Verdict

_BLOCK = 1 << 20
JUDGED = (ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP, REPORT)  # files of a folder that its verdict is about
TRANSFORMS = (ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP)
JUDGED_ENTRIES = (  # of result.json, from which a verdict follows
    "fixed_to_moving_affine_lps_mm",
    "stages",
    "interrupted",
    "notices",
    "figures",
    "labels",
    "landmarks",
    "inputs",
)
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


def verdict_entry(verdict: Verdict, entries: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The verdict as result.json keeps it: with the limits, the entries and the files of the folder it is about."""
    files = {name: recorded(folder / name) for name in JUDGED if (folder / name).is_file()}
    found = verdict.to_dict()
    judged = {"limits": limits_digest(), "entries": _digest(entries, found), "files": files}
    return {**found, "judged": judged}


def _digest(entries: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """What identifies a verdict and the entries from which it follows, as JSON has them."""
    plain = {name: entries[name] for name in JUDGED_ENTRIES if name in entries}
    own = {name: value for name, value in verdict.items() if name != "judged"}
    text = json.dumps(without_nan({**plain, "verdict": own}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def verdict_stands(entries: Mapping[str, Any], folder: Path) -> bool:
    """Whether the verdict of a result is about what is there now, entries and files, by the limits of today."""
    judged, files = _judged(entries)
    if files is None or judged.get("limits") != limits_digest():
        return False
    if judged.get("entries") != _digest(entries, entries["verdict"]):
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


def replaced_transforms(entries: Mapping[str, Any], folder: Path) -> list[Notice]:
    """Notices of the transforms of a folder that are not those its verdict is about; none without a verdict."""
    known = _judged(entries)[1] or {}
    found = [folder / name for name in TRANSFORMS if name in known and (folder / name).is_file()]
    changed = [path for path in found if not _is_same(known[path.name], path)]
    return [Notice(TRANSFORM_CHANGED, {"path": str(path)}) for path in changed]


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


def _judged(entries: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """What the verdict of a result is about, and the files among it; None for these if it does not say so."""
    verdict = entries.get("verdict")
    judged = verdict.get("judged") if isinstance(verdict, Mapping) else None
    if not isinstance(judged, Mapping):
        return {}, None
    files = judged.get("files")
    return judged, files if isinstance(files, Mapping) else None


def _entry(entries: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inputs = entries.get("inputs")
    entry = inputs.get(name) if isinstance(inputs, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


def file_sha256(place: Path) -> str | None:
    """SHA-256 of a file, or of all files of a folder; None for what is neither, such as a pipe."""
    if not place.is_file() and not place.is_dir():
        return None
    total = hashlib.sha256()
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.is_file():
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    total.update(block)
    return total.hexdigest()

"""Records of runs: one method on one case, finished or failed, as one JSON file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.peers import PEERS
from warpfactor.bench.run.method import OURS, Method
from warpfactor.bench.score import score
from warpfactor.io import atomic_path
from warpfactor.io.jsontext import json_text

FORMAT = 2
_OLD_FORMAT = 1  # had the scores under the name "figures"; runs of slow tools are worth keeping
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be made.

    Attributes:
        case: The case to register.
        method: The method.
        settings: All settings of the method for this case.
        masks: Whether to register inside the masks.
        initial: File of a transform to start from, or None.
        key: Hash of everything that determines the result.
    """

    case: BenchCase
    method: Method
    settings: Mapping[str, Any]
    masks: bool
    initial: Path | None
    key: str

    @property
    def file_name(self) -> str:
        """Name of the file of the record."""
        return f"{_slug(self.case.name)}--{_slug(self.method.label)}--{self.key}.json"


@dataclass(frozen=True)
class Run:
    """A run that was made.

    Attributes:
        case: Name of the case.
        group: Name of the group (dataset) of the case.
        method: Label of the method.
        status: "done" or "failed".
        reason: Why the run failed.
        scores: Scores, time and memory by name; `measures` lists the most important ones.
        per_label: Scores by label, as in `score.Scores`.
        per_landmark_mm: Landmark errors, as in `score.Scores`.
        entries: Complete content of the file.
    """

    case: str
    group: str
    method: str
    status: str
    reason: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    per_label: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    per_landmark_mm: tuple[float, ...] = ()
    entries: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the run finished."""
        return self.status == DONE

    @property
    def warp_discarded(self) -> bool:
        """Whether the warp was discarded because it raised the cost, so that the initial transform is scored."""
        stages = self.entries.get("details", {}).get("stages", [])
        return any(stage.get("name") == "deformable" and not stage.get("kept", True) for stage in stages)


def plan_run(case: BenchCase, method: Method, *, masks: bool = False, initial: Path | None = None) -> PlannedRun:
    """Plan a run of a method on a case.

    The key depends on the settings, the files, the definition of the scores and the version of another tool. It does
    not depend on our own code; the record stores a hash of the code instead (see `runner.made_by_other_code`).
    """
    settings = method.settings_for(case)
    initial = initial if method.tool == OURS else None
    inputs = {
        "tool": method.tool,
        "version": "" if method.tool not in PEERS else PEERS[method.tool].version(),
        "settings": settings,
        "masks": masks and (case.fixed_mask is not None or case.moving_mask is not None),
        "initial": None if initial is None else hashlib.sha256(initial.read_bytes()).hexdigest(),
        "files": {column: _fingerprint(path) for column, path in case.files().items()},
        "scores": score.VERSION,
    }
    text = json.dumps(inputs, sort_keys=True, default=str)
    return PlannedRun(case, method, settings, masks, initial, hashlib.sha256(text.encode()).hexdigest()[:12])


def read_run(path: Path) -> Run | None:
    """Read a record; None if it does not exist or cannot be read, in which case the run is made again."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if entries["format"] == _OLD_FORMAT:
            entries["scores"] = entries.pop("figures", {})
        elif entries["format"] != FORMAT:
            return None
        return _from_entries(entries)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_run(entries: Mapping[str, Any], path: Path) -> None:
    """Write a record atomically."""
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(json_text({"format": FORMAT, **entries}), encoding="utf-8")


def _from_entries(entries: dict[str, Any]) -> Run:
    return Run(
        case=entries["case"]["name"],
        group=entries["case"]["group"],
        method=entries["method"],
        status=entries["status"],
        reason=entries.get("reason") or "",
        scores={name: _number(value) for name, value in entries.get("scores", {}).items()},
        per_label={
            name: {int(label): _number(value) for label, value in values.items()}
            for name, values in entries.get("per_label", {}).items()
        },
        per_landmark_mm=tuple(entries.get("per_landmark_mm", ())),
        entries=entries,
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _fingerprint(path: Path) -> tuple[str, int, int]:
    """Path, size and modification time of a file; they reveal a change without reading the file."""
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns


def _slug(name: str) -> str:
    return re.sub(r"[^\w.=,-]+", "_", name).strip("_")[:60]

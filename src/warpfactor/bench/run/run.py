"""Run: one method on one case, done or failed, as one JSON file that says everything about it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import Case
from warpfactor.bench.peers import PEERS
from warpfactor.bench.run.method import OURS, Method
from warpfactor.bench.score import score
from warpfactor.io import atomic_path
from warpfactor.io.jsontext import json_text

FORMAT = 1
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Job:
    """One run to be made.

    Attributes:
        case, method: what to run.
        settings: of the method for this case, complete.
        masks: whether to register inside the masks.
        initial: transform to start from.
        key: hash of everything that decides the result.
    """

    case: Case
    method: Method
    settings: Mapping[str, Any]
    masks: bool
    initial: Path | None
    key: str

    @property
    def file_name(self) -> str:
        return f"{_slug(self.case.name)}--{_slug(self.method.label)}--{self.key}.json"


@dataclass(frozen=True)
class Run:
    """A run that was made.

    Attributes:
        case, group, method: names.
        status: "done" or "failed".
        reason: why it failed.
        figures: scores, and wall_s, cpu_s, peak_memory_mb; `metric` has the main ones.
        per_label, per_landmark_mm: as in `score.Scores`.
        entries: the whole file.
    """

    case: str
    group: str
    method: str
    status: str
    reason: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    per_label: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    per_landmark_mm: tuple[float, ...] = ()
    entries: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.status == DONE

    @property
    def left_out(self) -> bool:
        """Whether the warp was less alike than its start at full resolution, so that the start is what is scored."""
        stages = self.entries.get("details", {}).get("stages", [])
        return any(not stage.get("kept", True) for stage in stages)


def make_job(case: Case, method: Method, *, masks: bool = False, initial: Path | None = None) -> Job:
    """A run of a method on a case. Its key changes with settings, files, scores and a peer's version.

    It does not change with our own code; runs note that, and tables say so (`made_by_other_code`).
    """
    settings = method.settings_for(case)
    initial = initial if method.tool == OURS else None
    decides = {
        "tool": method.tool,
        "version": "" if method.tool not in PEERS else PEERS[method.tool].version(),
        "settings": settings,
        "masks": masks and (case.fixed_mask is not None or case.moving_mask is not None),
        "initial": None if initial is None else hashlib.sha256(initial.read_bytes()).hexdigest(),
        "files": {column: _fingerprint(path) for column, path in case.files().items()},
        "scores": score.VERSION,
    }
    text = json.dumps(decides, sort_keys=True, default=str)
    return Job(case, method, settings, masks, initial, hashlib.sha256(text.encode()).hexdigest()[:12])


def read_run(path: Path) -> Run | None:
    """The run in a file; None if there is none or it cannot be read, so that it is made again."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if entries["format"] != FORMAT:
            return None
        return _from_entries(entries)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_run(entries: Mapping[str, Any], path: Path) -> None:
    """Write the entries of a run, whole or not at all."""
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(json_text({"format": FORMAT, **entries}), encoding="utf-8")


def _from_entries(entries: dict[str, Any]) -> Run:
    return Run(
        case=entries["case"]["name"],
        group=entries["case"]["group"],
        method=entries["method"],
        status=entries["status"],
        reason=entries.get("reason") or "",
        figures={name: _number(value) for name, value in entries.get("figures", {}).items()},
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
    """Name, size and time of a file: changed images are registered again, without reading them all."""
    found = path.stat()
    return str(path.resolve()), found.st_size, found.st_mtime_ns


def _slug(name: str) -> str:
    return re.sub(r"[^\w.=,-]+", "_", name).strip("_")[:60]

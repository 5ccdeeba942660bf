"""The record of an iteration of a template: what it was made of, and how far it has come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from warpfactor.io import atomic_path
from warpfactor.io.jsontext import json_text

RECORD, IMAGE = "iteration.json", "template.nii.gz"


@dataclass(frozen=True)
class TemplateIteration:
    """One iteration of a template.

    Attributes:
        number: 0 is the start.
        key: hash of everything it was made of.
        change: of the template since the last iteration, relative to its contrast; None for the start.
        shift_mm: mean distance by which the mean of all maps moved the object, which was undone.
        sharpness_per_mm: mean gradient in the object, in standard deviations per mm.
        spacing_mm: finest spacing of the template; early iterations of large images are at twice that of the others.
        distances_mm: root mean square of each person's warp.
    """

    number: int
    key: str
    sharpness_per_mm: float
    spacing_mm: float
    change: float | None = None
    shift_mm: float | None = None
    distances_mm: Mapping[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the record, which marks a finished iteration."""
        with atomic_path(folder / RECORD, force=True) as temporary:
            temporary.write_text(json_text(asdict(self)), encoding="utf-8")


def read_iteration(folder: Path, key: str) -> TemplateIteration | None:
    """The record of an iteration that was made of what `key` says; None if there is none."""
    try:
        found = TemplateIteration(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.key == key and (folder / IMAGE).is_file() else None


def key_of(parts: Sequence[str]) -> str:
    """A hash of texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

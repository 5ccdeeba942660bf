"""A row of a cohort: two images to be registered, and the files that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.bidsname import BidsName
from warpfactor.errors import InputError

SEVERAL = ("fixed", "moving", "initial", "carry")  # columns that may name several files, separated by semicolons
SINGLE = ("fixed_mask", "moving_mask", "fixed_labels", "moving_labels", "fixed_landmarks", "moving_landmarks")
WORDS = ("name", "group", "recipe", "set")
COLUMNS = (*WORDS, *SEVERAL, *SINGLE)


class CohortError(InputError):
    """Everything that keeps a cohort from being run, found before any work.

    Attributes:
        problems: one sentence each.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class CohortRow:
    """One registration of a cohort.

    Attributes:
        name: of its result folder.
        fixed, moving: image files; several are channels that are registered together.
        fixed_mask, moving_mask, fixed_labels, moving_labels: of the two images.
        fixed_landmarks, moving_landmarks: corresponding points; the first may be a file for both images.
        initial: transform files, fixed to moving, to start from.
        carry: further images of moving space, to resample onto the fixed grid.
        group: over which figures are taken together.
        recipe: name or file; empty for that of the whole run.
        changes: settings of the recipe that are changed for this row.
        place: where the row comes from, for messages.
        bids: names of its files in a derivative dataset; None if there is to be none.
    """

    name: str
    fixed: tuple[Path, ...]
    moving: tuple[Path, ...]
    fixed_mask: Path | None = None
    moving_mask: Path | None = None
    fixed_labels: Path | None = None
    moving_labels: Path | None = None
    fixed_landmarks: Path | None = None
    moving_landmarks: Path | None = None
    initial: tuple[Path, ...] = ()
    carry: tuple[Path, ...] = ()
    group: str = ""
    recipe: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    bids: BidsName | None = None

    def files(self) -> Iterator[tuple[str, Path]]:
        """The name of its column and the path of every file."""
        for column in SEVERAL:
            yield from ((column, path) for path in getattr(self, column))
        for column in SINGLE:
            if (path := getattr(self, column)) is not None:
                yield column, path


@dataclass(frozen=True)
class Gathered:
    """Rows, and what is wrong with the source they come from.

    Attributes:
        rows: those that could be made.
        problems: a sentence for each that could not.
    """

    rows: tuple[CohortRow, ...]
    problems: tuple[str, ...] = ()


def stem(path: str | Path) -> str:
    """Name of a file without folder and suffix; `.nii.gz` counts as one suffix."""
    return Path(path).name.removesuffix(".gz").rsplit(".", 1)[0]

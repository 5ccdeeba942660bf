"""Rows that share one fixed image, the template: from a list of image files, or from a BIDS dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpfactor.cohort.table.bidsname import BidsName, label, parse_name
from warpfactor.cohort.table.row import CohortRow, Gathered, stem

DESCRIPTION = "dataset_description.json"
_WILD = "*?["


@dataclass(frozen=True)
class Template:
    """The fixed image of all rows, and where the files of each moving image are.

    Attributes:
        image: the template; several files are channels.
        mask, labels: of the template.
        moving_mask, moving_labels: patterns of paths in which {name} stands for the name of a row.
        moving_channels: patterns of further channels of the moving images.
        carry: patterns of images to carry along.
        name: of the template's space, in the names of BIDS; by default that of its file.
    """

    image: tuple[Path, ...]
    mask: Path | None = None
    labels: Path | None = None
    moving_mask: str | None = None
    moving_labels: str | None = None
    moving_channels: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    name: str = ""

    def row(self, name: str, moving: Path, bids: BidsName | None = None) -> CohortRow:
        """The row of a moving image."""
        return CohortRow(
            name=name,
            fixed=self.image,
            moving=(moving, *(_filled(pattern, name) for pattern in self.moving_channels)),
            fixed_mask=self.mask,
            moving_mask=None if self.moving_mask is None else _filled(self.moving_mask, name),
            fixed_labels=self.labels,
            moving_labels=None if self.moving_labels is None else _filled(self.moving_labels, name),
            carry=tuple(_filled(pattern, name) for pattern in self.carry),
            place=str(moving),
            bids=bids,
        )


@dataclass(frozen=True)
class BidsFilter:
    """Which images of a BIDS dataset are taken.

    Attributes:
        suffix: such as T1w.
        entities: values by key, such as ("ses", "01"); several values of one key are alternatives.
    """

    suffix: str = "T1w"
    entities: tuple[tuple[str, str], ...] = ()

    def takes(self, name: BidsName) -> bool:
        """Whether an image of that name is taken; 1 and 01 are the same number."""
        wanted: dict[str, set[str]] = {}
        for key, value in self.entities:
            wanted.setdefault(key, set()).add(_number(value))
        return name.suffix == self.suffix and all(
            _number(name.entities.get(key, "")) in values for key, values in wanted.items()
        )


def rows_of_images(images: Sequence[str | Path], template: Template) -> Gathered:
    """A row for every image; a name with wildcards stands for all files that match."""
    found: list[Path] = []
    problems = []
    for each in images:
        matches = _matches(str(each))
        found += matches
        if not matches:
            problems.append(f"{each}: no file matches.")
    ours = {path.resolve() for path in template.image}
    kept = [path for path in dict.fromkeys(found) if path.resolve() not in ours]
    return Gathered(tuple(template.row(stem(path), path) for path in kept), tuple(problems))


def is_bids(place: Path) -> bool:
    """Whether a folder is a BIDS dataset."""
    return (place / DESCRIPTION).is_file() or any(place.glob("sub-*"))


def rows_of_bids(place: Path, template: Template, wanted: BidsFilter | None = None) -> Gathered:
    """A row for every image of a BIDS dataset that a filter takes.

    The names of files say all that is needed here, so the folders are walked and no index of the dataset is built.
    """
    kept = wanted or BidsFilter()
    space = label(template.name or stem(template.image[0]))
    rows = []
    for path in sorted(place.glob("sub-*/**/*.nii*")):
        name = parse_name(path)
        if name is not None and kept.takes(name):
            name = replace(name, space=space)
            rows.append(template.row(name.name, path, name))
    if rows:
        return Gathered(tuple(rows))
    asked = "".join(f", {key}-{value}" for key, value in kept.entities)
    return Gathered((), (f"{place}: the dataset has no image sub-*_{kept.suffix}.nii.gz{asked}.",))


def _matches(text: str) -> list[Path]:
    if not any(mark in text for mark in _WILD) or Path(text).exists():
        return [Path(text)]
    path = Path(text)
    parts: Iterable[str] = path.parts[1:] if path.is_absolute() else path.parts
    return sorted(Path(path.anchor).glob(str(Path(*parts))))


def _filled(pattern: str, name: str) -> Path:
    return Path(pattern.replace("{name}", name))


def _number(value: str) -> str:
    return value.lstrip("0") or value

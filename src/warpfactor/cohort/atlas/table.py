"""A table of atlases: labelled images, a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.gather import gather
from warpfactor.cohort.table.row import CohortRow, Gathered
from warpfactor.cohort.table.tables import rows_of
from warpfactor.errors import FileError
from warpfactor.io.tables import read_lines

NAMES = {"image": "moving", "labels": "moving_labels", "mask": "moving_mask"}


def gather_atlases(source: Any, image: Path, mask: Path | None = None) -> Gathered:
    """The rows that register every atlas to an image.

    Args:
        source: a table with the columns image and labels, and optionally name and mask; or a list of dictionaries.
        image: to segment.
        mask: of the image.
    """
    found = _read(Path(source), image) if isinstance(source, (str, Path)) else _records(source, image)
    rows = tuple(replace(row, fixed_mask=mask) for row in found.rows)
    bare = tuple(f"{row.place}: the atlas has no labels." for row in rows if row.moving_labels is None)
    return Gathered(rows, (*found.problems, *bare))


def _read(path: Path, image: Path) -> Gathered:
    try:
        lines = read_lines(path)
    except FileError as error:
        return Gathered((), (str(error),))
    if len(lines) < 2:
        return Gathered((), (f"{path}: the table has no atlases; its columns are image and labels.",))
    header = [NAMES.get(name, name) for name in lines[0][1]]
    for column, name in (("moving", "image"), ("moving_labels", "labels")):
        if column not in header:
            return Gathered((), (f"{path}: the table needs a column {name!r}; it has {', '.join(lines[0][1])}.",))
    uneven = tuple(
        f"{path}: line {number} has {len(cells)} cells, but the first line has {len(header)}."
        for number, cells in lines[1:]
        if len(cells) != len(header)
    )
    known = [
        (f"{path}, line {number}", {**dict(zip(header, cells, strict=True)), "fixed": str(image.absolute())})
        for number, cells in lines[1:]
        if len(cells) == len(header)
    ]
    found = rows_of(known, [*header, "fixed"], path.parent, str(path))
    return Gathered(found.rows, (*uneven, *found.problems))


def _records(source: Any, image: Path) -> Gathered:
    records = source.to_dict("records") if hasattr(source, "to_dict") else list(source)
    if not records or not all(isinstance(each, (Mapping, CohortRow)) for each in records):
        return Gathered((), ("Atlases are a table, or a list of dictionaries with image and labels; give some.",))
    return gather([{**{NAMES.get(k, k): v for k, v in each.items()}, "fixed": image} for each in records])

"""A table of atlases: labelled images, a row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.gather import gather
from warpfactor.cohort.table.row import CohortRow, Gathered
from warpfactor.cohort.table.tables import lacking_columns, read_cells, rows_of

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
    found = read_renamed(path, ("image", "labels"), image)
    if found.rows or found.problems:
        return found
    return Gathered((), (f"{path}: the table has no atlases; give a line for each.",))


def read_renamed(path: Path, needed: Sequence[str], fixed: Path) -> Gathered:
    """Rows of a table with the columns image, labels, mask and name, of which `needed` must be there.

    Their moving image is that of the column image, and their fixed image is `fixed`.
    """
    cells = read_cells(path, needed)
    lacking = tuple(lacking_columns(cells.header, needed, str(path))) if cells.header else ()
    if lacking or not cells.header:
        return Gathered((), (*cells.problems, *lacking))
    header = [*(NAMES.get(name, name) for name in cells.header), "fixed"]
    whole = str(fixed.absolute())
    records = [
        (place, {**{NAMES.get(name, name): text for name, text in each.items()}, "fixed": whole})
        for place, each in cells.records
    ]
    found = rows_of(records, header, path.parent, str(path))
    return Gathered(found.rows, (*cells.problems, *found.problems))


def _records(source: Any, image: Path) -> Gathered:
    records = source.to_dict("records") if hasattr(source, "to_dict") else list(source)
    if not records or not all(isinstance(each, (Mapping, CohortRow)) for each in records):
        return Gathered((), ("Atlases are a table, or a list of dictionaries with image and labels; give some.",))
    return gather([{**{NAMES.get(k, k): v for k, v in each.items()}, "fixed": image} for each in records])

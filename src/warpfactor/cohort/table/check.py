"""Checks of rows before any work: what is wrong with a cohort, all at once, a sentence each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.row import CohortRow
from warpfactor.errors import WarpfactorError
from warpfactor.io.formats import find_format
from warpfactor.recipebook.files import recipe as find_recipe
from warpfactor.recipebook.recipe import Recipe

IMAGES = ("fixed", "moving", "fixed_mask", "moving_mask", "fixed_labels", "moving_labels", "carry")
_NAME = re.compile(r"[^./\\\s][^/\\]*")


def row_problems(rows: Sequence[CohortRow], recipe: str | Recipe, overrides: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with rows, one sentence each.

    Args:
        rows: to check.
        recipe, overrides: of rows that name none of their own; they are checked even if there are no rows.
    """
    if not rows:
        yield from _settings(recipe, overrides)
    yield from _repeated(rows)
    found: dict[str, list[str]] = {}  # places by what is wrong there, so that a template is not blamed in every row
    for row in rows:
        settings = _settings(row.recipe or recipe, {**overrides, **row.changes})
        for problem in dict.fromkeys((*_files(row), *_dimensions(row), *_partners(row), *settings)):
            found.setdefault(problem, []).append(row.place)
    for problem, places in found.items():
        others = len(places) - 1
        more = "" if others == 0 else f" and {others} more row{'s' * (others > 1)}"
        yield problem if problem.startswith(places[0]) and not more else f"{places[0]}{more}: {problem}"


def row_recipe(row: CohortRow, recipe: str | Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe of a row: its own or that of the run, with the changes of both; those of the row come last."""
    return find_recipe(row.recipe or recipe).replace({**overrides, **row.changes})


def _repeated(rows: Sequence[CohortRow]) -> Iterator[str]:
    names = Counter(row.name for row in rows)
    for name, count in names.items():
        if count > 1:
            places = "; ".join(row.place for row in rows if row.name == name)
            yield f"{count} rows have the name {name!r} and would share one result folder ({places}); rename them."
        if not _NAME.fullmatch(name):
            yield f"The name {name!r} cannot be that of a folder; use letters, digits, - and _."
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), []).append(name)
    for alike in folded.values():
        if len(alike) > 1:
            yield f"The names {' and '.join(alike)} are one folder on many file systems; rename one of them."


def _files(row: CohortRow) -> Iterator[str]:
    for column, path in row.files():
        if not path.exists():
            yield f"{path} does not exist."
        elif column in IMAGES:
            try:
                header_shape(path)
            except WarpfactorError as error:
                yield str(error)


@cache
def header_shape(path: Path) -> tuple[int, ...] | None:
    """Voxels along (z, y, x) or (y, x) by the header of a file; None for a folder of DICOM files."""
    return None if path.is_dir() else find_format(path).read_header(path).shape


def known_shape(path: Path) -> tuple[int, ...] | None:
    """As `header_shape`, but None for a file that is missing or cannot be read, which is another problem."""
    try:
        return header_shape(path) if path.exists() else None
    except WarpfactorError:
        return None


def _dimensions(row: CohortRow) -> Iterator[str]:
    fixed, moving = (known_shape(side[0]) for side in (row.fixed, row.moving))
    if fixed is not None and moving is not None and len(fixed) != len(moving):
        yield f"{row.fixed[0]} is {len(fixed)}-D and the moving image {len(moving)}-D; save both in the same way."


def _partners(row: CohortRow) -> Iterator[str]:
    if row.fixed_labels and not row.moving_labels:
        yield "there are fixed_labels but no moving_labels to compare them with."
    if row.moving_landmarks and not row.fixed_landmarks:
        yield "there are moving_landmarks but no fixed_landmarks."
    if len(row.fixed) != len(row.moving):
        yield f"there are {len(row.fixed)} fixed channels and {len(row.moving)} moving ones."


def _settings(recipe: str | Recipe, changes: Mapping[str, Any]) -> Iterator[str]:
    try:
        find_recipe(recipe).replace(changes)
    except WarpfactorError as error:
        yield str(error)

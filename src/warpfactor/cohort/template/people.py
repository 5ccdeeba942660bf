"""The people of a template: images of one or several channels, masks and labels, from files, patterns or a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpfactor.cohort.atlas.table import NAMES, read_renamed
from warpfactor.cohort.identity import identify
from warpfactor.cohort.table.check import known_shape
from warpfactor.cohort.table.gather import TABLES, gather
from warpfactor.cohort.table.row import CohortRow, Gathered
from warpfactor.cohort.table.template import Template, rows_of_images

FEWEST = 2


def gather_people(source: Any, patterns: Template | None = None) -> Gathered:
    """The rows of people; their fixed image is their own until there is a template.

    Args:
        source: image files or patterns, a table (.csv, .tsv) with the columns image, labels, mask and name, or a list
            of dictionaries with these keys.
        patterns: where further channels, masks and labels of image files are.
    """
    given: list[Any] = [source] if isinstance(source, (str, Path)) else list(source)
    if len(given) == 1 and isinstance(given[0], (str, Path)) and str(given[0]).lower().endswith(TABLES):
        path = Path(given[0])
        return _few(_to_themselves(read_renamed(path, ("image",), path)))
    if given and all(isinstance(each, (str, Path)) for each in given):
        nobody = replace(patterns or Template(()), image=())
        found = rows_of_images(given, nobody)
        return _few(_to_themselves(found))
    if given and all(hasattr(each, "items") for each in given):
        renamed = [{NAMES.get(key, key): value for key, value in each.items()} for each in given]
        return _few(gather([{**each, "fixed": each.get("moving")} for each in renamed]))
    return Gathered((), ("A template is made of images, a table or dictionaries; give at least two images.",))


def dimension_problems(rows: Sequence[CohortRow], start: Sequence[Path]) -> Iterator[str]:
    """Which images have another dimension than the first one, a sentence each."""
    known = [(path, known_shape(path)) for path in (*(row.moving[0] for row in rows), *start)]
    shapes = [(path, len(shape)) for path, shape in known if shape is not None]
    for path, count in shapes[1:]:
        if count != shapes[0][1]:
            yield f"{path} is {count}-D and {shapes[0][0]} {shapes[0][1]}-D; a template needs images of one dimension."


def in_order(rows: Sequence[CohortRow]) -> tuple[CohortRow, ...]:
    """The rows by the content of their images, so that a template does not depend on the order they were given in."""
    contents = {row.name: [each.digest for each in identify(row, {}, {}).files["moving"]] for row in rows}
    return tuple(sorted(rows, key=lambda row: (contents[row.name], row.name)))


def _to_themselves(found: Gathered) -> Gathered:
    return Gathered(tuple(replace(row, fixed=row.moving) for row in found.rows), found.problems)


def _few(found: Gathered) -> Gathered:
    if found.problems or len(found.rows) >= FEWEST:
        return found
    return Gathered(found.rows, (f"A template needs at least {FEWEST} images; there is {len(found.rows)}.",))

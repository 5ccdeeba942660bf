"""Rows from whatever a user gives: a table, records, images and a template, a BIDS dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.row import CohortRow, Gathered
from warpfactor.cohort.table.tables import read_rows, rows_of_records
from warpfactor.cohort.table.template import BidsFilter, Template, is_bids, rows_of_bids, rows_of_images

TABLES = (".csv", ".tsv")


def gather(source: Any, template: Template | None = None, wanted: BidsFilter | None = None) -> Gathered:
    """The rows of a source.

    Args:
        source: a table (.csv, .tsv), a BIDS folder, an image or pattern of images, a list of those, a list of
            dictionaries or of CohortRow, or a pandas frame.
        template: the fixed image, for images and BIDS datasets.
        wanted: which images of a BIDS dataset are taken.
    """
    if hasattr(source, "to_dict") and hasattr(source, "columns"):
        return rows_of_records(source.to_dict("records"))
    given: list[Any] = [source] if isinstance(source, (str, Path)) else list(source)
    if given and all(isinstance(each, CohortRow) for each in given):
        return Gathered(tuple(given))
    if given and all(isinstance(each, Mapping) for each in given):
        return rows_of_records(given)
    if not all(isinstance(each, (str, Path)) for each in given):
        return Gathered((), ("A cohort is a table, a BIDS folder, images, or rows; give one of those.",))
    return _from_paths(given, template, wanted)


def _from_paths(given: Sequence[str | Path], template: Template | None, wanted: BidsFilter | None) -> Gathered:
    tables = [Path(each) for each in given if str(each).lower().endswith(TABLES)]
    if tables and len(given) == 1:
        return _from_table(tables[0], template)
    if tables:
        return Gathered((), (f"{tables[0]}: give one table alone, or images and a template.",))
    folders = [Path(each) for each in given if Path(each).is_dir() and is_bids(Path(each))]
    if template is None:
        what = "BIDS dataset" if folders else "images"
        return Gathered((), (f"The {what} need a template to be registered to; give it (--template FILE).",))
    if folders and len(given) == 1:
        return rows_of_bids(folders[0], template, wanted)
    return rows_of_images(given, template)


def _from_table(path: Path, template: Template | None) -> Gathered:
    if template is not None:
        return Gathered((), (f"{path}: a table names the fixed images itself; leave out the template.",))
    return read_rows(path)

"""The design of a comparison: a table of people as a matrix with a column for the effect and one for each covariate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfactor.errors import FileError
from warpfactor.io.tables import read_lines

Matrix = NDArray[np.float64]
NAME = "name"


@dataclass(frozen=True)
class Design:
    """A linear model of people.

    Attributes:
        names: of the people, a row of the matrix each.
        matrix: (people, columns): the effect, ones, covariates; all but the ones are centred.
        contrast: what the first column says, for readers: "b - a", or "per unit of age".
        groups: how many people have each value of the effect; empty if it is a number.
    """

    names: tuple[str, ...]
    matrix: Matrix
    contrast: str
    groups: Mapping[str, int]

    @property
    def degrees(self) -> int:
        """Degrees of freedom that are left for the residuals."""
        return len(self.matrix) - int(self.matrix.shape[1])


def read_records(table: Any) -> list[dict[str, str]]:
    """The lines of a table (.csv, .tsv), a pandas frame or a list of dictionaries, as text by column."""
    if isinstance(table, (str, Path)):
        (_, header), *lines = read_lines(Path(table)) or [(0, [])]
        short = [number for number, cells in lines if len(cells) != len(header)]
        if short:
            raise FileError(f"{table}: line {short[0]} has another number of cells than the first line; correct it.")
        return [dict(zip(header, cells, strict=True)) for _, cells in lines]
    records = table.to_dict("records") if hasattr(table, "to_dict") else list(table)
    return [
        {str(key): "" if value is None or value != value else str(value) for key, value in each.items()}
        for each in records
    ]


def design_problems(records: Sequence[Mapping[str, str]], effect: str, covariates: Sequence[str]) -> Iterator[str]:
    """What keeps a table from being a design, one sentence each."""
    if not records:
        yield "The table of people has no lines; it needs the columns name and those to compare by."
        return
    columns = [NAME, effect, *covariates]
    lacking = [column for column in columns if column not in records[0]]
    yield from (
        f"The table of people has no column {column!r}; it has {', '.join(records[0])}."
        for column in dict.fromkeys(lacking)
    )
    if lacking:
        return
    for column in columns:
        empty = [number for number, record in enumerate(records, 1) if not record[column]]
        if empty:
            yield f"The table of people has no {column} in row {empty[0]}; fill it in, or leave out the row."
    names = [record[NAME] for record in records]
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield f"The name {name!r} stands twice in the table of people; each person has one row."
    values = [record[effect] for record in records]
    kinds = len(set(values))
    if kinds == 1:
        yield f"Everybody has the same {effect}, {values[0]}; there is nothing to compare."
    elif kinds > 2 and numbers(values) is None:
        yield f"The column {effect!r} has {kinds} different texts; it must hold two groups, or numbers."
    if len(set(columns)) != len(columns):
        yield "A column is named twice; name the effect and each covariate once."


def make_design(records: Sequence[Mapping[str, str]], effect: str, covariates: Sequence[str]) -> Design:
    """The design of a table without problems."""
    values = [record[effect] for record in records]
    first, contrast, groups = _effect(effect, values)
    columns = [first - first.mean(), np.ones(len(values))]
    for covariate in covariates:
        columns += _covariate([record[covariate] for record in records])
    return Design(tuple(record[NAME] for record in records), np.column_stack(columns), contrast, groups)


def matrix_problems(design: Design) -> Iterator[str]:
    """Why the effect cannot be estimated: too few people, or covariates that determine it."""
    if design.degrees < 1:
        yield (
            f"{len(design.matrix)} people are too few for a model of {design.matrix.shape[1]} columns; "
            "give more people or fewer covariates."
        )
    elif np.linalg.matrix_rank(design.matrix) < design.matrix.shape[1]:
        yield "The effect and the covariates determine each other; leave out a covariate."


def numbers(values: Sequence[str]) -> Matrix | None:
    """Texts as finite numbers; None if one of them is not."""
    try:
        found = np.array([float(value) for value in values])
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _effect(name: str, values: Sequence[str]) -> tuple[Matrix, str, dict[str, int]]:
    known = numbers(values)
    kinds = sorted(set(values))
    if known is not None and len(kinds) > 2:
        return known, f"per unit of {name}", {}
    low, high = kinds if known is None else sorted(kinds, key=float)
    coded = np.array([float(value == high) for value in values])
    return coded, f"{high} - {low}", {kind: values.count(kind) for kind in (low, high)}


def _covariate(values: Sequence[str]) -> list[Matrix]:
    known = numbers(values)
    if known is not None:
        return [known - known.mean()]
    coded = [np.array([float(value == kind) for value in values]) for kind in sorted(set(values))[1:]]
    return [column - column.mean() for column in coded]

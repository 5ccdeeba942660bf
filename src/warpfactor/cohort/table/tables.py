"""Rows from a table: a CSV or TSV file, a pandas frame, or a list of dictionaries.

The columns are those that `warpfactor datasets` explains, and `initial`, `carry` and `set` besides. Every problem is
noted, so that a user sees all of them at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.cohort.table.row import COLUMNS, SEVERAL, SINGLE, CohortRow, Gathered, stem
from warpfactor.errors import FileError
from warpfactor.io.tables import read_lines
from warpfactor.recipebook.plain import parse_value

NEEDED = ("fixed", "moving")
_SEPARATOR = ";"  # of several files in one cell


@dataclass(frozen=True)
class TableCells:
    """The cells of a table file.

    Attributes:
        header: the names of the columns.
        records: where each line stands, for messages, and its cells by column; lines of another length are left out.
        problems: a sentence for each of those.
    """

    header: tuple[str, ...]
    records: tuple[tuple[str, dict[str, str]], ...]
    problems: tuple[str, ...]


def read_cells(path: Path, needed: Sequence[str]) -> TableCells:
    """The cells of a CSV or TSV file; `needed` are the columns that it must have at least, for messages."""
    try:
        lines = read_lines(path)
    except FileError as error:
        return TableCells((), (), (str(error),))
    if not lines:
        wanted = " and ".join(needed)
        return TableCells(
            (), (), (f"{path}: the table is empty; its first line must name the columns, at least {wanted}.",)
        )
    (_, names), *rows = lines
    header = tuple(names)
    uneven = (
        f"{path}: line {number} has {len(cells)} cells, but the first line has {len(header)}."
        for number, cells in rows
        if len(cells) != len(header)
    )
    even = (
        (f"{path}, line {number}", dict(zip(header, cells, strict=True)))
        for number, cells in rows
        if len(cells) == len(header)
    )
    return TableCells(header, tuple(even), tuple(uneven))


def lacking_columns(header: Sequence[str], needed: Sequence[str], source: str) -> Iterator[str]:
    """Which columns a table lacks, a sentence each."""
    for name in needed:
        if name not in header:
            yield f"{source}: the table needs a column {name!r}; it has {', '.join(header)}."


def read_rows(path: Path) -> Gathered:
    """The rows of a CSV or TSV file; its paths are relative to its folder."""
    cells = read_cells(path, NEEDED)
    if not cells.header:
        return Gathered((), cells.problems)
    found = rows_of(cells.records, cells.header, path.parent, str(path))
    return Gathered(found.rows, (*cells.problems, *found.problems))


def rows_of_records(records: Iterable[Mapping[str, Any]]) -> Gathered:
    """The rows of dictionaries, or of the records of a pandas frame; paths are relative to the working directory."""
    cells = [{str(key): _text(value) for key, value in record.items()} for record in records]
    header = list(dict.fromkeys(key for record in cells for key in record))
    return rows_of([(f"row {k}", each) for k, each in enumerate(cells, 1)], header, Path(), "the table")


def rows_of(
    records: Sequence[tuple[str, Mapping[str, str]]], header: Sequence[str], root: Path, source: str
) -> Gathered:
    """Rows from cells by column.

    Args:
        records: for every row where it comes from, and its cells.
        header: the names of the columns.
        root: folder to which paths are relative.
        source: the table, for messages.
    """
    problems = list(_header_problems(header, source))
    if problems:
        return Gathered((), tuple(problems))
    rows = []
    for place, cells in records:
        lacking = [column for column in NEEDED if not cells.get(column)]
        wrong = [text for text in _set_parts(cells.get("set", "")) if "=" not in text]
        problems += [f"{place}: there is no {column} image." for column in lacking]
        problems += [f"{place}: set {text!r} must be NAME=VALUE, several separated by semicolons." for text in wrong]
        if not lacking and not wrong:
            rows.append(_row(place, cells, root))
    return Gathered(tuple(rows), tuple(problems))


def _header_problems(header: Sequence[str], source: str) -> Iterable[str]:
    strange = [repr(name) for name in header if name not in COLUMNS]
    if strange:
        known = ", ".join(COLUMNS)
        yield f"{source}: unknown column{'s' * (len(strange) > 1)} {', '.join(strange)}; the known columns are {known}."
    if header:
        yield from lacking_columns(header, NEEDED, source)
    if len(set(header)) != len(header):
        yield f"{source}: a column name appears twice."


def _row(place: str, cells: Mapping[str, str], root: Path) -> CohortRow:
    several = {column: _paths(cells.get(column, ""), root) for column in SEVERAL}
    single = {column: root / cells[column] for column in SINGLE if cells.get(column)}
    return CohortRow(
        name=cells.get("name") or stem(several["moving"][0]),
        group=cells.get("group", ""),
        recipe=_recipe(cells.get("recipe", ""), root),
        changes=dict(_setting(text) for text in _set_parts(cells.get("set", ""))),
        place=place,
        **several,  # type: ignore[arg-type]
        **single,  # type: ignore[arg-type]
    )


def _recipe(text: str, root: Path) -> str:
    """A recipe's name, or its file, which is looked for beside the table."""
    return str(root / text) if text.lower().endswith((".toml", ".json")) else text


def _paths(cell: str, root: Path) -> tuple[Path, ...]:
    return tuple(root / part.strip() for part in cell.split(_SEPARATOR) if part.strip())


def _set_parts(cell: str) -> list[str]:
    return [part.strip() for part in cell.split(_SEPARATOR) if part.strip()]


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name.strip(), parse_value(value.strip())


def _text(value: Any) -> str:
    """A cell of a frame or dictionary as text; what is missing is empty, and lists are joined."""
    if value is None or value != value:
        return ""
    if isinstance(value, (list, tuple)):
        return _SEPARATOR.join(str(part) for part in value)
    if isinstance(value, Mapping):
        return _SEPARATOR.join(f"{name}={json.dumps(part)}" for name, part in value.items())
    return str(value).strip()

"""Tables with named columns, written as CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfactor.io import atomic_path
from warpfactor.io.jsontext import json_text

Value = str | float | int | None


@dataclass(frozen=True)
class TableColumn:
    """Column of a table.

    Attributes:
        key: Key of its values in the rows, and its name in CSV and JSON.
        title: Title in Markdown and on the terminal.
        digits: Digits after the decimal point in Markdown and on the terminal; CSV and JSON have all digits.
    """

    key: str
    title: str
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: Name in files.
        title: Heading in Markdown and on the terminal.
        columns: The columns.
        rows: Values by key of the column; missing values leave a cell empty.
    """

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[Mapping[str, Value], ...]

    def without_empty_columns(self) -> Table:
        """The table without columns that have no values."""
        kept = tuple(column for column in self.columns if any(not _missing(row.get(column.key)) for row in self.rows))
        return Table(self.name, self.title, kept, self.rows)


def cells(table: Table) -> list[list[str]]:
    """Formatted cells of every row."""
    return [[_text(row.get(column.key), column.digits) for column in table.columns] for row in table.rows]


def to_csv(table: Table) -> str:
    """The table as CSV, with all digits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([["" if _missing(v := row.get(c.key)) else v for c in table.columns] for row in table.rows])
    return stream.getvalue()


def to_markdown(table: Table) -> str:
    """The table as Markdown, with its title as a heading."""
    lines = [[column.title for column in table.columns], ["---"] * len(table.columns), *cells(table)]
    body = "\n".join(f"| {' | '.join(part.replace('|', '/') for part in line)} |" for line in lines)
    return f"### {table.title}\n\n{body}\n"


def to_plain(table: Table) -> list[dict[str, Value]]:
    """The rows as plain data for JSON."""
    return [{column.key: row.get(column.key) for column in table.columns} for row in table.rows]


def write_tables(tables: Sequence[Table], folder: Path, name: str, *, notes: str = "", extra: Any = None) -> list[Path]:
    """Write NAME.csv (the first table), NAME_TABLE.csv (the others), NAME.json and NAME.md, and return their paths.

    Args:
        tables: Tables, the most detailed one first; in Markdown it comes last.
        folder: Folder of the files.
        name: Common name of the files.
        notes: Text above the tables in Markdown.
        extra: Further entries for the JSON file.
    """
    written = []
    for number, table in enumerate(tables):
        path = folder / (f"{name}.csv" if number == 0 else f"{name}_{table.name}.csv")
        written.append(_write(path, to_csv(table)))
    entries = {**(extra or {}), **{table.name: to_plain(table) for table in tables}}
    written.append(_write(folder / f"{name}.json", json_text(entries)))
    parts = [notes, *(to_markdown(table) for table in (*tables[1:], *tables[:1]))]
    written.append(_write(folder / f"{name}.md", "\n".join(part for part in parts if part)))
    return written


def _write(path: Path, text: str) -> Path:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _missing(value: Value) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _text(value: Value, digits: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return "0" if value == 0 else f"{value:.{digits}f}"
    return str(value)

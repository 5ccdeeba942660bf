"""Tables: named columns and rows of plain values, written as CSV, JSON and Markdown."""

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
class Column:
    """One column.

    Attributes:
        key: of the values in the rows, and the name in CSV and JSON.
        title: for people.
        digits: of numbers after the point, in Markdown; CSV and JSON have them all.
    """

    key: str
    title: str
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """Rows of values by column key; what a row lacks stays empty.

    Attributes:
        name: of its files, and in JSON.
        title: above it in Markdown.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]

    def without_empty_columns(self) -> Table:
        """Only the columns in which some row has a value."""
        kept = tuple(column for column in self.columns if any(not _missing(row.get(column.key)) for row in self.rows))
        return Table(self.name, self.title, kept, self.rows)


def cells(table: Table) -> list[list[str]]:
    """Every row as text for people."""
    return [[_text(row.get(column.key), column.digits) for column in table.columns] for row in table.rows]


def to_csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([["" if _missing(v := row.get(c.key)) else v for c in table.columns] for row in table.rows])
    return stream.getvalue()


def to_markdown(table: Table) -> str:
    lines = [[column.title for column in table.columns], ["---"] * len(table.columns), *cells(table)]
    body = "\n".join(f"| {' | '.join(part.replace('|', '/') for part in line)} |" for line in lines)
    return f"### {table.title}\n\n{body}\n"


def to_plain(table: Table) -> list[dict[str, Value]]:
    """Rows for JSON."""
    return [{column.key: row.get(column.key) for column in table.columns} for row in table.rows]


def write_tables(tables: Sequence[Table], folder: Path, name: str, *, notes: str = "", extra: Any = None) -> list[Path]:
    """Write NAME.csv (the first table), NAME_*.csv (the others), NAME.json and NAME.md; return the files.

    Args:
        tables: the most detailed one first; in Markdown it comes last.
        notes: text above the tables in Markdown.
        extra: more entries for the JSON.
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

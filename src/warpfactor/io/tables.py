"""Tables in text files: CSV with commas, TSV with tabs."""

from __future__ import annotations

import csv
from pathlib import Path

from warpfactor.errors import FileError


def read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """The lines of a table that are not empty, each with its number and its cells; the first has the column names."""
    if not path.is_file():
        raise FileError(f"{path}: there is no such table.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=separator(path))
            return [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: the file is not a table in UTF-8 ({error}).") from error


def separator(path: Path) -> str:
    """What separates the cells of a table of that name."""
    return "\t" if path.suffix.lower() == ".tsv" else ","

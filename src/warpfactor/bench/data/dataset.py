"""Datasets: pairs of images with what is needed to score them, from a plain table; every path is checked at once.

A table is CSV or TSV with a line of column names: `fixed` and `moving`, and any of the other names of `Case`. Paths are
relative to the table. Learn2Reg's own dataset JSON is read by `learn2reg`.
"""

from __future__ import annotations

import csv
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from warpfactor.errors import FileError, InputError

FILES = (
    "fixed",
    "moving",
    "fixed_labels",
    "moving_labels",
    "fixed_landmarks",
    "moving_landmarks",
    "fixed_mask",
    "moving_mask",
)
WORDS = ("name", "group", "recipe")
_SHOWN = 10  # problems listed before the rest is only counted


@dataclass(frozen=True)
class Case:
    """One pair of images and what is known about it.

    Attributes:
        name: unique within its dataset.
        fixed, moving: image files.
        fixed_labels, moving_labels: label maps on the grids of their images.
        fixed_landmarks, moving_landmarks: points that correspond; see `landmarks.read_pair`. One file may hold both
            sides, it is then given as fixed_landmarks.
        fixed_mask, moving_mask: where the images count (not zero).
        group: what its results are averaged with, such as the name of a dataset.
        recipe: the one that the method `own` uses.
    """

    name: str
    fixed: Path
    moving: Path
    fixed_labels: Path | None = None
    moving_labels: Path | None = None
    fixed_landmarks: Path | None = None
    moving_landmarks: Path | None = None
    fixed_mask: Path | None = None
    moving_mask: Path | None = None
    group: str = ""
    recipe: str = "default"

    def to_dict(self) -> dict[str, str | None]:
        """Plain data for JSON."""
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: None if value is None else str(value) for name, value in plain.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, str | None]) -> Case:
        """The case of what `to_dict` returned."""
        return cls(**{name: Path(text) if name in FILES and text else text for name, text in data.items()})  # type: ignore[arg-type]

    def files(self) -> dict[str, Path]:
        """The files that are given, by column."""
        found = {column: getattr(self, column) for column in FILES}
        return {column: path for column, path in found.items() if path is not None}


@dataclass(frozen=True)
class Dataset:
    """Cases, and what their labels are called.

    Attributes:
        name: of the table or the challenge.
        cases: at least one, names unique.
        label_names: by label; empty if nobody said.
    """

    name: str
    cases: tuple[Case, ...]
    label_names: Mapping[int, str] = field(default_factory=dict)

    def only(self, pattern: str | None) -> Dataset:
        """The cases whose name or group matches a pattern as of file names, such as `brain*`; several with commas."""
        if pattern is None:
            return self
        wanted = [part.strip() for part in pattern.split(",") if part.strip()]
        kept = tuple(c for c in self.cases if any(fnmatch(c.name, w) or fnmatch(c.group, w) for w in wanted))
        if not kept:
            shown = ", ".join(case.name for case in self.cases[:_SHOWN])
            more = " ..." if len(self.cases) > _SHOWN else "."
            raise InputError(f"No case matches {pattern!r}; the dataset {self.name} has {shown}{more}")
        return dataclasses.replace(self, cases=kept)


def read_dataset(path: str | Path, *, check: bool = True) -> Dataset:
    """The dataset of a table (.csv, .tsv), of a Learn2Reg .json, or of a folder that holds one such JSON.

    Args:
        check: that all files are there; without, `check_files` does so for the cases that are used.
    """
    from warpfactor.bench.data.learn2reg import read_learn2reg  # which builds on this file

    place = Path(path)
    if place.is_dir():
        return read_learn2reg(_only_json(place), check=check)
    readers = {".csv": read_table, ".tsv": read_table, ".json": read_learn2reg}
    reader = readers.get(place.suffix.lower())
    if reader is None and not place.exists():
        raise FileError(f"{place}: there is no such file or folder.")
    if reader is None:
        raise FileError(f"{place}: a dataset is a table (.csv, .tsv) or a Learn2Reg .json; see `warpfactor datasets`.")
    return reader(place, check=check)


def read_table(path: str | Path, *, check: bool = True) -> Dataset:
    """The cases of a table, one a line; `check` as of `read_dataset`."""
    place = Path(path)
    header, rows = _rows(place)
    cases = [_case(place, number, dict(zip(header, row, strict=True))) for number, row in rows]
    return checked(Dataset(place.stem, tuple(cases)), place, files=check)


def checked(dataset: Dataset, source: Path, *, files: bool = True) -> Dataset:
    """The dataset itself, if it has cases, their names are unique and, with `files`, `check_files` finds nothing."""
    if not dataset.cases:
        raise FileError(f"{source}: holds no cases.")
    refuse(_repeated(dataset.cases), source)
    if files:
        check_files(dataset.cases, source)
    return dataset


def check_files(cases: Iterable[Case], source: str | Path) -> None:
    """FileError unless every file of the cases is there and has its partner.

    Args:
        source: where the cases are from, for the message.
    """
    refuse([text for case in cases for text in _problems(case)], source)


def refuse(problems: Sequence[str], source: str | Path) -> None:
    """FileError that lists the problems of a dataset; nothing if there are none."""
    if problems:
        more = len(problems) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        raise FileError(f"{source}: {'; '.join(problems[:_SHOWN])}{rest}.")


def write_table(cases: Sequence[Case], path: str | Path, *, force: bool = False) -> None:
    """Write cases as CSV; columns that no case has are left out, paths are relative to the table where they can be."""
    from warpfactor.io import atomic_path

    place = Path(path).resolve().parent
    used = [name for name in (*WORDS, *FILES) if any(getattr(case, name) for case in cases)]
    with atomic_path(path, force=force) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(used)
        writer.writerows([_cell(getattr(case, name), place) for name in used] for case in cases)


def _cell(value: Path | str | None, place: Path) -> str:
    if isinstance(value, Path) and value.is_absolute() and value.is_relative_to(place):
        return str(value.relative_to(place))
    return "" if value is None else str(value)


def _only_json(folder: Path) -> Path:
    found = sorted(folder.glob("*_dataset.json")) or sorted(folder.glob("*.json"))
    if not found:
        raise FileError(f"{folder}: holds no dataset JSON; name such a folder, or a table of pairs (.csv, .tsv).")
    if len(found) > 1:
        raise FileError(f"{folder}: holds {len(found)} dataset JSON files where one is meant; name the file.")
    return found[0]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Column names, and the lines that are not empty with their numbers."""
    if not path.is_file():
        raise FileError(f"{path}: there is no such table.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: is not a table in UTF-8 text ({error}).") from error
    if not lines:
        raise FileError(f"{path}: is empty; the first line names the columns, at least fixed and moving.")
    (_, header), *rows = lines
    _check_header(path, header)
    for number, row in rows:
        if len(row) != len(header):
            raise FileError(f"{path}: line {number} has {len(row)} cells, the first line {len(header)}.")
    return header, rows


def _check_header(path: Path, header: list[str]) -> None:
    known = (*WORDS, *FILES)
    strange = [name for name in header if name not in known]
    wrong = next((mark for mark in (";", "\t", ",") if strange and mark in strange[0]), None)
    if wrong:
        kind = "commas in a .csv" if path.suffix.lower() == ".csv" else "tabs in a .tsv"
        raise FileError(f"{path}: its columns are separated by {wrong!r}; that should be {kind}.")
    if strange:
        raise FileError(f"{path}: unknown column {strange[0]!r}; known are {', '.join(known)}.")
    for name in ("fixed", "moving"):
        if name not in header:
            raise FileError(f"{path}: needs a column {name!r}; it has {', '.join(header)}.")
    if len(set(header)) != len(header):
        raise FileError(f"{path}: a column name appears twice.")


def _case(table: Path, number: int, cells: Mapping[str, str]) -> Case:
    for name in ("fixed", "moving"):
        if not cells[name]:
            raise FileError(f"{table}: line {number} has no {name} image.")
    files = {name: table.parent / text for name, text in cells.items() if name in FILES and text}
    words = {name: text for name, text in cells.items() if name in WORDS and text}
    words.setdefault("name", f"{stem(cells['fixed'])} <- {stem(cells['moving'])}")
    words.setdefault("group", table.stem)
    return Case(**{**words, **files})  # type: ignore[arg-type]


def stem(path: str | Path) -> str:
    """The name of a file without its folder and suffixes, `.nii.gz` as one."""
    return Path(path).name.removesuffix(".gz").rsplit(".", 1)[0]


def _repeated(cases: Iterable[Case]) -> list[str]:
    counts = Counter(case.name for case in cases)
    return [f"{count} cases are named {name!r}, names must differ" for name, count in counts.items() if count > 1]


def _problems(case: Case) -> list[str]:
    """What is wrong with the files of a case, each with case, column and file."""
    missing = [
        f"case {case.name!r}, column {column!r}: {path} does not exist"
        for column, path in case.files().items()
        if not path.exists()
    ]
    alone = [
        f"case {case.name!r} has {given} but no {other}; labels are compared, give both"
        for given, other in (("fixed_labels", "moving_labels"), ("moving_labels", "fixed_labels"))
        if getattr(case, given) and not getattr(case, other)
    ]
    if case.moving_landmarks and not case.fixed_landmarks:
        alone.append(f"case {case.name!r} has moving_landmarks but no fixed_landmarks")
    return missing + alone

"""Datasets: image pairs and what is needed to score a registration, read from a table.

A table is a CSV or TSV file whose first line has the names of the columns: `fixed` and `moving`, and optionally the
other fields of `BenchCase`. Paths are relative to the table. `learn2reg` reads the dataset files of Learn2Reg, and
`kinds` reads a folder of several tables.
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
from warpfactor.io.tables import read_lines

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
_SHOWN = 10  # problems that are listed; further ones are only counted


@dataclass(frozen=True)
class BenchCase:
    """An image pair and the files that are needed to score its registration.

    Attributes:
        name: Name, unique within its dataset.
        fixed: Fixed image.
        moving: Moving image.
        fixed_labels: Label map of the fixed image.
        moving_labels: Label map of the moving image.
        fixed_landmarks: Landmarks in the fixed image, or a file with the landmarks of both images; see
            `landmarks.read_pair`.
        moving_landmarks: Corresponding landmarks in the moving image.
        fixed_mask: Mask of the fixed image (nonzero voxels count).
        moving_mask: Mask of the moving image.
        group: Group over which results are averaged, such as the name of a dataset.
        recipe: Recipe that the method `own` uses.
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
        """The case as plain data for JSON."""
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: None if value is None else str(value) for name, value in plain.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, str | None]) -> BenchCase:
        """Inverse of `to_dict`."""
        return cls(**{name: Path(text) if name in FILES and text else text for name, text in data.items()})  # type: ignore[arg-type]

    def files(self) -> dict[str, Path]:
        """The files of the case by name of the column."""
        found = {column: getattr(self, column) for column in FILES}
        return {column: path for column, path in found.items() if path is not None}


@dataclass(frozen=True)
class Dataset:
    """A list of cases.

    Attributes:
        name: Name of the dataset.
        cases: The cases; there is at least one, and their names are unique.
        label_names: Names of the labels; empty if unknown.
    """

    name: str
    cases: tuple[BenchCase, ...]
    label_names: Mapping[int, str] = field(default_factory=dict)

    def only(self, pattern: str | None) -> Dataset:
        """The cases whose name or group matches one of several patterns with wildcards, such as `brain*,lung`."""
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
    """Read a dataset: a table (.csv, .tsv), a Learn2Reg JSON file, or a folder of one of them or of several tables.

    Args:
        path: File or folder.
        check: Whether to check that all files exist; `check_files` does the same for a selection of cases.
    """
    from warpfactor.bench.data.kinds import is_folder_of_tables, read_kinds  # these modules build on this one
    from warpfactor.bench.data.learn2reg import read_learn2reg

    place = Path(path)
    if place.is_dir():
        if is_folder_of_tables(place):
            return read_kinds(place, check=check)
        return read_learn2reg(_only_json(place), check=check)
    readers = {".csv": read_table, ".tsv": read_table, ".json": read_learn2reg, ".toml": read_kinds}
    reader = readers.get(place.suffix.lower())
    if reader is None and not place.exists():
        raise FileError(f"{place}: there is no such file or folder.")
    if reader is None:
        raise FileError(
            f"{place}: a dataset is a table (.csv, .tsv), a Learn2Reg .json file, a list of kinds (.toml), or a "
            "folder of these; see `warpfactor datasets`."
        )
    return reader(place, check=check)


def read_table(path: str | Path, *, check: bool = True, root: Path | None = None) -> Dataset:
    """Read a table with one case per line.

    Args:
        path: The table.
        check: Whether to check that all files exist.
        root: Folder to which the paths in the table are relative (default: the folder of the table).
    """
    place = Path(path)
    header, rows = _rows(place)
    cases = [_case(place, number, dict(zip(header, row, strict=True)), root or place.parent) for number, row in rows]
    return checked(Dataset(place.stem, tuple(cases)), place, files=check)


def checked(dataset: Dataset, source: Path, *, files: bool = True) -> Dataset:
    """Return the dataset, or raise a FileError if it has no cases, repeated names or, with `files`, missing files."""
    if not dataset.cases:
        raise FileError(f"{source}: the dataset has no cases.")
    refuse(_repeated(dataset.cases), source)
    if files:
        check_files(dataset.cases, source)
    return dataset


def check_files(cases: Iterable[BenchCase], source: str | Path) -> None:
    """Raise a FileError if a file of the cases does not exist or its counterpart is missing.

    Args:
        cases: The cases.
        source: Where the cases come from, for the message.
    """
    refuse([text for case in cases for text in _problems(case)], source)


def refuse(problems: Sequence[str], source: str | Path) -> None:
    """Raise a FileError that lists the problems of a dataset, if there are any."""
    if problems:
        more = len(problems) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        raise FileError(f"{source}: {'; '.join(problems[:_SHOWN])}{rest}.")


def write_table(cases: Sequence[BenchCase], path: str | Path, *, force: bool = False) -> None:
    """Write cases as a CSV table. Paths below the folder of the table become relative; empty columns are left out."""
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
        raise FileError(
            f"{folder}: the folder contains neither a Learn2Reg dataset JSON nor tables of pairs (.csv, .tsv)."
        )
    if len(found) > 1:
        raise FileError(f"{folder}: the folder contains {len(found)} dataset JSON files; give the path of one of them.")
    return found[0]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Names of the columns, and the nonempty lines with their line numbers."""
    lines = read_lines(path)
    if not lines:
        raise FileError(f"{path}: the table is empty; its first line must name the columns, at least fixed and moving.")
    (_, header), *rows = lines
    _check_header(path, header)
    for number, row in rows:
        if len(row) != len(header):
            raise FileError(f"{path}: line {number} has {len(row)} cells, but the first line has {len(header)}.")
    return header, rows


def _check_header(path: Path, header: list[str]) -> None:
    known = (*WORDS, *FILES)
    strange = [name for name in header if name not in known]
    wrong = next((mark for mark in (";", "\t", ",") if strange and mark in strange[0]), None)
    if wrong:
        kind = "commas in a .csv" if path.suffix.lower() == ".csv" else "tabs in a .tsv"
        raise FileError(f"{path}: the columns are separated by {wrong!r}; use {kind} file.")
    if strange:
        raise FileError(f"{path}: unknown column {strange[0]!r}; the known columns are {', '.join(known)}.")
    for name in ("fixed", "moving"):
        if name not in header:
            raise FileError(f"{path}: the table needs a column {name!r}; it has {', '.join(header)}.")
    if len(set(header)) != len(header):
        raise FileError(f"{path}: a column name appears twice.")


def _case(table: Path, number: int, cells: Mapping[str, str], root: Path) -> BenchCase:
    for name in ("fixed", "moving"):
        if not cells[name]:
            raise FileError(f"{table}: line {number} has no {name} image.")
    files = {name: root / text for name, text in cells.items() if name in FILES and text}
    words = {name: text for name, text in cells.items() if name in WORDS and text}
    words.setdefault("name", f"{stem(cells['fixed'])} <- {stem(cells['moving'])}")
    words.setdefault("group", table.stem)
    return BenchCase(**{**words, **files})  # type: ignore[arg-type]


def stem(path: str | Path) -> str:
    """Name of a file without folder and suffix; `.nii.gz` counts as one suffix."""
    return Path(path).name.removesuffix(".gz").rsplit(".", 1)[0]


def _repeated(cases: Iterable[BenchCase]) -> list[str]:
    counts = Counter(case.name for case in cases)
    return [
        f"{count} cases have the name {name!r}, but names must be unique" for name, count in counts.items() if count > 1
    ]


def _problems(case: BenchCase) -> list[str]:
    """Problems with the files of a case, each with case, column and file."""
    missing = [
        f"case {case.name!r}, column {column!r}: {path} does not exist"
        for column, path in case.files().items()
        if not path.exists()
    ]
    alone = [
        f"case {case.name!r} has {given} but no {other}; both are needed"
        for given, other in (("fixed_labels", "moving_labels"), ("moving_labels", "fixed_labels"))
        if getattr(case, given) and not getattr(case, other)
    ]
    if case.moving_landmarks and not case.fixed_landmarks:
        alone.append(f"case {case.name!r} has moving_landmarks but no fixed_landmarks")
    return missing + alone

"""Several kinds of images in one benchmark: a folder with one table per kind, or a TOML file that lists the tables.

A list of kinds has this form; `data` is optional and is the folder to which the paths in the tables are relative:

    data = "/path/to/data"

    [kinds]
    brain = "brain.csv"
    lung = "lung.csv"

`COLLECTION` describes the kinds on which warpfactor is developed, as pairs of files in a folder of data, and
`write_kind_tables` writes the tables for such a folder.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import BenchCase, Dataset, check_files, checked, read_table, write_table
from warpfactor.errors import FileError, InputError
from warpfactor.io.atomic import atomic_folder

LIST = "kinds.toml"
_SUFFIXES = (".csv", ".tsv")


def is_folder_of_tables(folder: Path) -> bool:
    """Whether a folder holds a list of kinds, or tables and no Learn2Reg dataset."""
    if (folder / LIST).is_file():
        return True
    return bool(_tables(folder)) and not any(folder.glob("*_dataset.json"))


def read_kinds(path: str | Path, *, check: bool = True) -> Dataset:
    """Read the tables of several kinds as one dataset whose groups are the kinds.

    Args:
        path: A folder of tables, each named after its kind, or a TOML file that lists the tables.
        check: Whether to check that all files exist.
    """
    place = Path(path)
    if place.is_dir() and not (place / LIST).is_file():
        tables, data = {table.stem: table for table in _tables(place)}, None
    else:
        place = place / LIST if place.is_dir() else place
        tables, data = _read_list(place)
    cases = [
        replace(case, group=kind)
        for kind, table in tables.items()
        for case in read_table(table, check=False, root=data).cases
    ]
    return checked(Dataset(place.name.removesuffix(".toml"), unique_names(cases)), place, files=check)


def unique_names(cases: Sequence[BenchCase]) -> tuple[BenchCase, ...]:
    """Make the names of cases unique: where two groups use the same name, prefix it with the group."""
    counts = Counter(case.name for case in cases)
    found = tuple(replace(c, name=f"{c.group} {c.name}") if counts[c.name] > 1 else c for c in cases)
    repeated = [name for name, count in Counter(case.name for case in found).items() if count > 1]
    if repeated:
        raise InputError(f"The pair {repeated[0]!r} occurs twice; give each dataset only once.")
    return found


def _tables(folder: Path) -> list[Path]:
    """The tables of pairs in a folder; other CSV files, such as landmarks, are recognised by their columns."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    return [path for path in found if _names_images(path)]


def _names_images(path: Path) -> bool:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        columns = stream.readline().strip().split("\t" if path.suffix.lower() == ".tsv" else ",")
    return {"fixed", "moving"} <= {column.strip() for column in columns}


def _read_list(path: Path) -> tuple[dict[str, Path], Path | None]:
    """Tables by kind, and the folder to which their paths are relative."""
    entries = _parse(path)
    kinds = entries.get("kinds")
    if not isinstance(kinds, Mapping) or not all(isinstance(name, str) for name in kinds.values()) or not kinds:
        raise FileError(f'{path}: the file must have a section [kinds] with lines such as brain = "brain.csv".')
    data = entries.get("data")
    tables = {str(kind): path.parent / name for kind, name in kinds.items()}
    return tables, None if data is None else path.parent / str(data)


def _parse(path: Path) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path}: the file is not valid TOML ({error}).") from error


# The collection


@dataclass(frozen=True)
class ImageKind:
    """One kind of images in a folder of data.

    Attributes:
        name: Name of the kind; it is also the name of its folder and of its table.
        title: Description.
        pairs: Names of the pairs (fixed, moving).
        image: Pattern of the image files; `{}` stands for the name.
        labels: Pattern of the label maps, or empty.
        landmarks: Pattern of the landmark files, with `{moving}` for the name of the moving image; or empty.
        mask: Pattern of the masks, or empty.
        recipe: Recipe that suits this kind; the method `own` uses it.
        outside: Number of landmarks at the end of the file that are left out, because they lie outside the organ.
    """

    name: str
    title: str
    pairs: tuple[tuple[str, str], ...]
    image: str = "{}.nii.gz"
    labels: str = ""
    landmarks: str = ""
    mask: str = ""
    recipe: str = "default"
    outside: int = 0

    def cases(self, data: Path) -> Iterator[BenchCase]:
        """The pairs of this kind, with paths below a folder of data."""
        folder = data / self.name
        for fixed, moving in self.pairs:
            yield BenchCase(
                name=f"{_short(fixed)} <- {_short(moving)}",
                fixed=folder / self.image.format(fixed),
                moving=folder / self.image.format(moving),
                fixed_labels=folder / self.labels.format(fixed) if self.labels else None,
                moving_labels=folder / self.labels.format(moving) if self.labels else None,
                fixed_landmarks=folder / self.landmarks.format(moving=_short(moving)) if self.landmarks else None,
                fixed_mask=folder / self.mask.format(fixed) if self.mask else None,
                moving_mask=folder / self.mask.format(moving) if self.mask else None,
                group=self.name,
                recipe=self.recipe,
            )


def _short(name: str) -> str:
    """Name of an image without the words "fixed" and "moving"."""
    return "_".join(part for part in name.split("_") if part not in ("fixed", "moving")) or name


def _ring(*names: str) -> tuple[tuple[str, str], ...]:
    """Each image with the next one, and the last with the first."""
    return tuple(zip(names, (*names[1:], names[0]), strict=True))


_HIPPOCAMPI = ("001", "003", "004", "006", "007", "008", "011", "014", "015", "017")
COLLECTION = (
    ImageKind(
        "brain",
        "T1 brains of 8 people",
        _ring(*(str(number) for number in range(1000, 1008))),
        image="{}_t1_brain.nii.gz",
        labels="{}_labels.nii.gz",
    ),
    ImageKind(
        "mouse",
        "T2 mouse brains",
        (("fvb1", "fvb2"), ("fvb3", "fvb4")),
        image="{}_t2_brain.nii.gz",
        labels="{}_labels.nii.gz",
    ),
    ImageKind(
        "protonlung",
        "proton MR of the lungs",
        (("0004", "0006"), ("0006", "0007"), ("0007", "0011"), ("0011", "0012")),
        image="{}_h1.nii.gz",
        labels="{}_lobes.nii.gz",
    ),
    ImageKind(
        "hippocampus",
        "MR crops around the hippocampus",
        _ring(*_HIPPOCAMPI),
        image="hippocampus_{}_img.nii.gz",
        labels="hippocampus_{}_lab.nii.gz",
    ),
    ImageKind(
        "slices2d",
        "2-D slices of T1 brains",
        _ring(*(str(number) for number in range(1, 11))),
        image="OASIS-TRT-20-{}_slice118.nii.gz",
        labels="OASIS-TRT-20-{}_DKT31_CMA_labels_slice118.nii.gz",
    ),
    ImageKind(
        "lung",
        "CT of the lung, follow-up to baseline",
        (("lung_fixed", "lung_moving"),),
        landmarks="landmarks_51_corrected.csv",
        mask="{}_mask.nii.gz",
        recipe="lung",
    ),
    ImageKind(
        "liver",
        "MR of the abdomen during breathing",
        tuple(
            (f"{subject}_fixed_exh", f"{subject}_moving_{state}")
            for subject, state in (("s18", "cyc_1_10"), ("s18", "cyc_3_10"), ("s19", "cyc_1_6"), ("s19", "cyc_1_9"))
        ),
        landmarks="{moving}_landmarks.csv",
        recipe="abdomen",
        outside=20,
    ),
    ImageKind(
        "macaque",
        "templates of the macaque brain",
        (("macaque_nmt_brain", "macaque_inia19_brain"),),
        landmarks="macaque_nmt_inia19_landmarks_32.csv",
    ),
    ImageKind(
        "contrast",
        "T2 and proton density of one brain",
        (("ms_t2_fixed", "ms_pd_moving"),),
        landmarks="ms_t2_pd_landmarks.csv",
        recipe="multimodal",
    ),
    ImageKind(
        "knee",
        "two echoes of a knee",
        (("knee_dess1_fixed", "knee_dess2_moving"),),
        landmarks="knee_landmarks.csv",
        recipe="multimodal",
    ),
    ImageKind(
        "histology",
        "neighbouring sections in different stains",
        (
            *(("lobes_he_fixed", f"lobes_{stain}_moving") for stain in ("cd31", "cc10", "ki67", "prospc")),
            ("kidney_he_fixed", "kidney_panck_moving"),
        ),
        landmarks="{moving}_landmarks.csv",
        recipe="multimodal",
    ),
)


def write_kind_tables(data: Path, output: Path, *, force: bool = False) -> dict[str, int]:
    """Write one table for each kind of COLLECTION that a folder of data has, and return the number of pairs by kind.

    Kinds whose folder does not exist are left out. Landmarks outside the organ are left out as well; the remaining ones
    are written beside the tables.
    """
    root = data.resolve()
    found = {kind: list(kind.cases(root)) for kind in COLLECTION if (root / kind.name).is_dir()}
    if not found:
        names = ", ".join(kind.name for kind in COLLECTION)
        raise FileError(f"{data}: the folder has none of the expected subfolders ({names}).")
    for cases in found.values():
        check_files(cases, data)
    own = [f"{kind.name}.csv" for kind in found]
    with atomic_folder(output, force=force, own=own) as folder:
        for kind, cases in found.items():
            if kind.outside:
                cases = [_without_last(case, kind.outside, folder) for case in cases]
            write_table(cases, folder / f"{kind.name}.csv")
    return {kind.name: len(cases) for kind, cases in found.items()}


def _without_last(case: BenchCase, count: int, folder: Path) -> BenchCase:
    """The case with a copy of its landmark file in a folder, without the last `count` landmarks."""
    if case.fixed_landmarks is None:
        return case
    with case.fixed_landmarks.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    path = Path(f"{case.group}_{case.fixed_landmarks.name}")
    with (folder / path).open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows[: len(rows) - count])
    return replace(case, fixed_landmarks=path)

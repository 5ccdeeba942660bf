"""Datasets in the format of the Learn2Reg challenge: a JSON file and folders imagesTr, labelsTr, masksTr, keypointsTr.

The JSON file lists pairs as {"fixed": "./imagesTr/NLST_0101_0000.nii.gz", "moving": ...}. Labels, masks and keypoints
have the name of their image in folders of their own; the JSON file need not mention them. Keypoints are CSV files of
voxel indices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor.bench.data.dataset import BenchCase, Dataset, checked, stem
from warpfactor.errors import FileError

# In order of preference. LUMIR uses "validation", the first challenges used "pairs_val".
PAIRS = ("registration_test", "test_paired_images", "registration_val", "validation", "pairs_val", "val_pairs")
KEYPOINTS = ("landmarks", "keypoints")  # manual landmarks are preferred


def read_learn2reg(path: str | Path, *, check: bool = True) -> Dataset:
    """Read the test or validation pairs of a Learn2Reg dataset, with their labels, masks and keypoints.

    The test pairs are used if their labels or keypoints are available, which is the case only for the organizers;
    otherwise the validation pairs are used.

    Args:
        path: The JSON file.
        check: Whether to check that all files exist.
    """
    place = Path(path)
    data = _parse(place)
    name = str(data.get("name") or place.stem.removesuffix("_dataset"))
    pairs = {key: _cases(place, key, data[key], name) for key in PAIRS if data.get(key)}
    if not pairs:
        raise FileError(f"{place}: the file lists no pairs; a Learn2Reg JSON file has them under {', '.join(PAIRS)}.")
    scored = (cases for cases in pairs.values() if any(c.fixed_labels or c.fixed_landmarks for c in cases))
    chosen = next(scored, list(pairs.values())[-1])
    return checked(Dataset(name, chosen, _label_names(data)), place, files=check)


def _parse(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such dataset.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path}: the file is not valid JSON ({error}).") from error
    if not isinstance(data, dict):
        raise FileError(f"{path}: the file is not a Learn2Reg dataset, which is a JSON object with lists of pairs.")
    return data


def _cases(source: Path, key: str, pairs: Any, group: str) -> tuple[BenchCase, ...]:
    if not isinstance(pairs, list):
        raise FileError(f"{source}: {key!r} is not a list of pairs.")
    cases = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, Mapping) or not all(isinstance(pair.get(s), str) for s in ("fixed", "moving")):
            raise FileError(f"{source}: entry {number} of {key!r} is not a pair of a fixed and a moving image.")
        cases.append(_case(source.parent, str(pair["fixed"]), str(pair["moving"]), group))
    return tuple(cases)


def _case(folder: Path, fixed: str, moving: str, group: str) -> BenchCase:
    images = folder / fixed, folder / moving
    points = _keypoints(*images)
    return BenchCase(
        name=f"{_short(fixed, group)} <- {_short(moving, group)}",
        fixed=images[0],
        moving=images[1],
        fixed_labels=_beside(images[0], "labels"),
        moving_labels=_beside(images[1], "labels"),
        fixed_landmarks=points[0],
        moving_landmarks=points[1],
        fixed_mask=_beside(images[0], "masks"),
        moving_mask=_beside(images[1], "masks"),
        group=group,
    )


def _short(image: str, group: str) -> str:
    """Shorten `NLST_0101_0000` in the dataset NLST to `0101_0000`."""
    return stem(image).removeprefix(f"{group}_")


def _keypoints(fixed: Path, moving: Path) -> tuple[Path | None, Path | None]:
    """Keypoints of both images, of the same kind.

    If an image belongs to several pairs, the name of the folder has the two modalities: keypoints01Tr, keypoints02Tr.
    """
    modalities = "".join(sorted(stem(image)[-1:] for image in (fixed, moving)))
    for kind in [kind + extra for kind in KEYPOINTS for extra in ("", modalities)]:
        found = [_beside(image, kind, ".csv") for image in (fixed, moving)]
        if all(found):
            return found[0], found[1]
    return None, None


def _beside(image: Path, kind: str, suffix: str | None = None) -> Path | None:
    """File of another kind (labels, masks, ...) that belongs to an image, or None if it does not exist."""
    if not image.parent.name.startswith("images"):
        return None
    folder = image.parent.with_name(image.parent.name.replace("images", kind, 1))
    ending = suffix or image.name.removeprefix(stem(image))
    names = [stem(image), stem(image).rpartition("_")[0]]
    places = [folder / f"{name}{ending}" for name in names if name]
    return next((place for place in places if place.is_file()), None)


def _label_names(data: Mapping[str, Any]) -> dict[int, str]:
    """Names of the labels; the JSON file has them once, or once per modality."""
    labels = data.get("labels")
    if not isinstance(labels, Mapping):
        return {}
    tables = [part for part in labels.values() if isinstance(part, Mapping)] or [labels]
    names = {str(key): str(text) for table in tables for key, text in table.items()}
    return {int(key): text for key, text in names.items() if key.isdigit() and int(key) != 0}

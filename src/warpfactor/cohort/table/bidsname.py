"""Names of the Brain Imaging Data Structure: entities such as `sub-01_ses-2`, and the names of derivatives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9]+)")
_SUFFIXES = (".nii.gz", ".nii")


@dataclass(frozen=True)
class BidsName:
    """A file name of BIDS, `sub-01_ses-2_T1w.nii.gz`, taken apart.

    Attributes:
        entities: by key, in the order of the name.
        suffix: the last part, such as T1w.
        datatype: the folder it lies in, such as anat.
        space: name of the template in the names of derivatives.
    """

    entities: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    datatype: str = "anat"
    space: str = "template"

    @property
    def stem(self) -> str:
        """The entities as they are written in file names."""
        return "_".join(f"{key}-{value}" for key, value in self.entities.items())

    @property
    def name(self) -> str:
        """The whole name without its extension."""
        return f"{self.stem}_{self.suffix}"

    @property
    def folder(self) -> Path:
        """Where its derivatives belong, relative to the dataset."""
        levels = [f"{key}-{self.entities[key]}" for key in ("sub", "ses") if key in self.entities]
        return Path(*levels, self.datatype)

    def image(self, suffix: str = "") -> Path:
        """File of an image that was resampled to the template."""
        return self.folder / f"{self.stem}_space-{self.space}_{suffix or self.suffix}.nii.gz"

    def transform(self, *, to_template: bool) -> Path:
        """File of a transform that resamples images to the template, or back."""
        first, second = (self.suffix, self.space) if to_template else (self.space, self.suffix)
        return self.folder / f"{self.stem}_from-{first}_to-{second}_mode-image_xfm.h5"


def parse_name(path: Path) -> BidsName | None:
    """The parts of a name of an image; None if it is not one of BIDS."""
    extension = next((end for end in _SUFFIXES if path.name.endswith(end)), None)
    if extension is None:
        return None
    *parts, suffix = path.name.removesuffix(extension).split("_")
    pairs = [_ENTITY.fullmatch(part) for part in parts]
    if not parts or any(pair is None for pair in pairs) or not re.fullmatch(r"[a-zA-Z0-9]+", suffix):
        return None
    entities = {pair[1]: pair[2] for pair in pairs if pair is not None}
    return BidsName(entities, suffix, path.parent.name) if "sub" in entities else None


def label(text: str) -> str:
    """Text as a value of an entity, which has letters and digits only."""
    return re.sub(r"[^a-zA-Z0-9]", "", text) or "template"

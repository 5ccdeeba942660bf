"""Results under the names of BIDS derivatives: images in the template's space and transforms, with JSON sidecars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpfactor import __version__
from warpfactor.cohort.table.row import CohortRow
from warpfactor.io import atomic_path, write_image, write_labels, write_transform
from warpfactor.registration.companions import Companions
from warpfactor.registration.result import Registration

_DESCRIPTION = {
    "Name": "warpfactor: images registered to a template",
    "BIDSVersion": "1.9.0",
    "DatasetType": "derivative",
    "GeneratedBy": [{"Name": "warpfactor", "Version": __version__}],
}


def write_derivatives(found: Registration, row: CohortRow, dataset: Path, companions: Companions | None) -> None:
    """Write a result into a derivative dataset.

    The transform `from-T1w_to-TEMPLATE` resamples images to the template. As a map of points it goes the other way, as
    ITK's transforms do.

    Args:
        found: the result.
        row: whose `bids` names the files.
        dataset: folder of the dataset.
        companions: label maps to resample too.
    """
    names = row.bids
    if names is None:
        return
    _write_json(dataset / "dataset_description.json", _DESCRIPTION)
    about = {"SpatialReference": str(row.fixed[0].absolute()), "Sources": [str(path.absolute()) for path in row.moving]}
    image = dataset / names.image()
    write_image(found.warped, image, force=True)
    _write_json(_sidecar(image), about)
    labels = None if companions is None else companions.carry(found)
    if labels is not None:
        path = dataset / names.image("dseg")
        write_labels(labels, path, like=row.moving_labels, force=True)
        _write_json(_sidecar(path), about)
    for to_template, transform in ((True, found.transform), (False, found.inverse)):
        path = dataset / names.transform(to_template=to_template)
        write_transform(transform, path, force=True)
        _write_json(_sidecar(path), {**about, "Software": f"warpfactor {__version__}"})


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".gz").rsplit(".", 1)[0] + ".json")


def _write_json(path: Path, entries: Mapping[str, Any]) -> None:
    with atomic_path(path, force=True) as temporary:
        temporary.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")

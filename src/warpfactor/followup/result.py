"""What a longitudinal run found, and the folder it is saved to."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warpfactor import __version__
from warpfactor.followup.structures import inner_voxels
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import atomic_folder, run_together, write_image, write_transform
from warpfactor.io.jsontext import json_text
from warpfactor.kernels.ops import Ops
from warpfactor.registration.result import Registration
from warpfactor.scene.levels import finest_spacing
from warpfactor.show.report.change import ChangePage, render_change

MEAN, LABELS, TABLE, REPORT, RESULT = "mean.nii.gz", "labels.nii.gz", "changes.csv", "report.html", "longitudinal.json"
MAP_VOX = 3.0  # voxels of the finest axis: SD of the Gaussian on maps of change


@dataclass(frozen=True)
class LabelChange:
    """How a structure changed.

    Attributes:
        voxels: of the common space that it has.
        mean_log: mean of the log Jacobian in it, without the voxels at its border, whose differences reach outside.
        lost: by how much that is smaller in size than the change, as it is shared with the surroundings; see
            structures.py. 0 for the whole object.
        percent: the change of volume in percent, 100 (exp(mean_log + lost) - 1).
    """

    voxels: int
    mean_log: float
    lost: float
    percent: float

    @classmethod
    def of(cls, log_change: Tensor, inside: Tensor, lost: float = 0.0) -> LabelChange:
        mean = float(log_change[inner_voxels(inside)].double().mean())
        return cls(int(inside.sum()), mean, lost, 100 * math.expm1(mean + lost))


@dataclass(frozen=True)
class Change:
    """A scan relative to the first one.

    Attributes:
        name: of the scan.
        log_jacobian: map in the common space: above 0 where the scan is larger than the first, below where smaller;
            smoothed by three voxels, which averages out most of the noise.
        mean_absolute_log: its mean absolute value in the object: how much the map says in all, noise included.
        whole: the change of the whole object, of the map before it was smoothed, as those of structures.
        labels: of every structure of the label map, by its number.
        registration: of the first scan (fixed) and this one (moving).
    """

    name: str
    log_jacobian: Image
    mean_absolute_log: float
    whole: LabelChange
    labels: dict[int, LabelChange]
    registration: Registration


@dataclass(frozen=True)
class Longitudinal:
    """Scans of one person in a space between them, and the change since the first scan.

    Attributes:
        scans: all of them in the common space, the first one first.
        mean: their mean there.
        to_scans: transforms of points of the common space into each scan; they resample a scan onto its grid.
        changes: of every scan but the first.
        labels: structures in the common space, or None.
        seconds: how long it took.
    """

    scans: tuple[Image, ...]
    mean: Image
    to_scans: tuple[Transform, ...]
    changes: tuple[Change, ...]
    labels: Image | None
    seconds: float

    def __repr__(self) -> str:
        parts = (f"{change.name} {change.whole.percent:+.2f} %" for change in self.changes)
        return f"Longitudinal({len(self.scans)} scans; since the first: {', '.join(parts)})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the registrations, as sentences."""
        return tuple(f"{change.name}: {text}" for change in self.changes for text in change.registration.warnings)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain data, as longitudinal.json has them."""
        return {
            "version": __version__,
            "scans": [scan.name for scan in self.scans],
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "recipe": self.changes[0].registration.recipe.to_dict(),
            "changes": [_change_to_dict(change) for change in self.changes],
        }

    def save(self, folder: str | Path, *, force: bool = False, report: bool = True) -> Path:
        """Write everything into a folder, which appears complete or not at all.

        Args:
            folder: for the scans and maps in the common space, the transforms, a table and a report.
            force: replace the files of an earlier run.
            report: write report.html too.
        """
        with atomic_folder(folder, force=force, own=_own(len(self.scans))) as place:
            _write_volumes(self, place)
            _write_table(self, place / TABLE)
            if report:
                (place / REPORT).write_text(self.report(), encoding="utf-8")
            (place / RESULT).write_text(json_text(self.to_dict()), encoding="utf-8")
        return Path(folder)

    def report(self) -> str:
        """One page with pictures and figures of all changes, as HTML."""
        pages = [
            ChangePage(
                name=change.name,
                scan=scan,
                log_change=change.log_jacobian,
                mean_absolute_log=change.mean_absolute_log,
                rows=_rows(change),
            )
            for change, scan in zip(self.changes, self.scans[1:], strict=True)
        ]
        return render_change(self.scans[0], self.mean, pages, self.warnings)


def figures_of(
    name: str,
    log_change: Image,
    inside: Tensor,
    labels: Image | None,
    lost: Mapping[int, float],
    registration: Registration,
    ops: Ops,
) -> Change:
    """The change of a scan with its figures.

    Args:
        log_change: map in the common space.
        inside: (D, H, W) bool, the object there.
        labels: structures there, or None.
        lost: of the log change of every structure; see LabelChange.
    """
    values, smooth = log_change.data[0], _smoothed(log_change, ops)
    found = {} if labels is None else {int(v): labels.data[0] == v for v in torch.unique(labels.data) if v != 0}
    return Change(
        name=name,
        log_jacobian=smooth,
        mean_absolute_log=float(smooth.data[0][inside].double().abs().mean()),
        whole=LabelChange.of(values, inside),
        labels={value: LabelChange.of(values, where, lost.get(value, 0.0)) for value, where in found.items()},
        registration=registration,
    )


def _smoothed(log_change: Image, ops: Ops) -> Image:
    """The map with the noise of single voxels averaged out."""
    grid = log_change.grid
    sigma = [
        MAP_VOX * finest_spacing(grid) / s if n > 1 else 0.0 for s, n in zip(grid.spacing_mm, grid.shape, strict=True)
    ]
    return replace(log_change, data=ops.smooth_gaussian(log_change.data.clone(), sigma))


def _rows(change: Change) -> list[tuple[str, LabelChange]]:
    """What a table says of a change: the whole object, then every label."""
    return [("whole", change.whole), *((str(value), found) for value, found in change.labels.items())]


def _change_to_dict(change: Change) -> Mapping[str, Any]:
    return {
        "scan": change.name,
        "mean_absolute_log": change.mean_absolute_log,
        "whole": asdict(change.whole),
        "labels": {str(value): asdict(found) for value, found in change.labels.items()},
        "affine_first_to_scan_lps_mm": change.registration.affine.matrix.tolist(),
        "status": change.registration.status,
    }


def _own(scans: int) -> tuple[str, ...]:
    """The files of a folder, the one that marks it complete last."""
    numbered = [name for number in range(1, scans + 1) for name in _names(number)]
    return (MEAN, LABELS, *numbered, TABLE, REPORT, RESULT)


def _names(number: int) -> tuple[str, str, str]:
    """Files of a scan: the image, its transform, its change."""
    return f"scan{number}.nii.gz", f"scan{number}Warp.nii.gz", f"change{number}.nii.gz"


def _write_volumes(result: Longitudinal, place: Path) -> None:
    jobs = [partial(write_image, result.mean, place / MEAN)]
    if result.labels is not None:
        jobs.append(partial(write_image, result.labels, place / LABELS))
    for number, (scan, transform) in enumerate(zip(result.scans, result.to_scans, strict=True), start=1):
        image, warp, _ = _names(number)
        jobs.append(partial(write_image, scan, place / image))
        jobs.append(partial(write_transform, transform.to_warp(scan.grid), place / warp))
    for number, change in enumerate(result.changes, start=2):
        jobs.append(partial(write_image, change.log_jacobian, place / _names(number)[2]))
    run_together(jobs, result.changes[0].registration.run.threads)


def _write_table(result: Longitudinal, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ("scan", "structure", "voxels", "mean_log_jacobian", "lost_to_smoothing", "volume_change_percent")
        )
        for change in result.changes:
            for name, found in _rows(change):
                figures = f"{found.mean_log:.6f}", f"{found.lost:.6f}", f"{found.percent:.4f}"
                writer.writerow((change.name, name, found.voxels, *figures))

"""Label maps and landmarks that go with a registration: read and checked before it, carried and measured after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warpfactor as wf
from warpfactor.cli.mixups import lie_apart, warn_of_landmarks_outside, warn_of_misread_landmarks
from warpfactor.errors import InputError


@dataclass(frozen=True)
class Companions:
    """What is known about the images besides their intensities; any part may be missing.

    Attributes:
        fixed_labels: on the fixed image's grid.
        moving_labels: anywhere in moving space.
        moving_labels_path: file they were read from.
        landmarks: corresponding points.
        landmarks_path: file they were read from, if their reading is still to be checked.
        ras: whether that file is RAS.
    """

    fixed_labels: wf.Image | None = None
    moving_labels: wf.Image | None = None
    moving_labels_path: Path | None = None
    landmarks: wf.io.Landmarks | None = None
    landmarks_path: Path | None = None
    ras: bool = False

    @classmethod
    def read(
        cls,
        fixed_labels: Path | None,
        moving_labels: Path | None,
        landmarks: Path | None,
        *,
        ras: bool,
        fixed: wf.Image,
        moving: wf.Image,
    ) -> Companions:
        """Everything from its file; InputError if it cannot belong to the images."""
        if fixed_labels is not None and moving_labels is None:
            raise InputError("--fixed-labels scores carried labels; give --moving-labels too.")
        target = None if fixed_labels is None else read_filled_labels(fixed_labels).on_grid(fixed.grid)
        source = None if moving_labels is None else read_filled_labels(moving_labels)
        if source is not None:
            check_same_space(source, moving.grid, moving.name)
        if landmarks is None:
            return cls(target, source, moving_labels)
        points = wf.io.read_landmarks(landmarks, ras=ras)
        outside = warn_of_landmarks_outside(landmarks, points, fixed.grid, moving.grid, ras=ras)
        return cls(target, source, moving_labels, points, None if outside else landmarks, ras)

    def carry(self, found: wf.Registration) -> wf.Image | None:
        """The moving labels on the fixed grid."""
        return None if self.moving_labels is None else found.apply(self.moving_labels, mode="label")

    def scores(self, found: wf.Registration, carried: wf.Image | None) -> dict[str, Any]:
        """Entries for result.json: overlap of labels and errors of landmarks, before and after."""
        entries = {}
        if self.fixed_labels is not None and self.moving_labels is not None and carried is not None:
            before = wf.Affine().resample(self.moving_labels, found.fixed_grid, mode="label")
            entries["labels"] = _overlap(self.fixed_labels, before, carried)
        if self.landmarks is not None:
            if self.landmarks_path is not None:
                warn_of_misread_landmarks(self.landmarks_path, self.landmarks, found.transform, ras=self.ras)
            entries["landmarks"] = _errors(self.landmarks, found)
        return entries


def read_filled_labels(path: Path) -> wf.Image:
    """A label map that has a label somewhere."""
    labels = wf.read_labels(path)
    if not bool(labels.data.any()):
        raise InputError(f"{labels.name}: the label map is empty; at least one voxel must have a label.")
    return labels


def check_same_space(labels: wf.Image, grid: wf.Grid, name: str) -> None:
    """InputError if a label map lies elsewhere than the image it belongs to; their grids need not agree."""
    if labels.grid.ndim != grid.ndim:
        raise InputError(
            f"{labels.name} is a {labels.grid.ndim}-D file and {name} a {grid.ndim}-D one; "
            "labels must lie where their image lies."
        )
    if lie_apart(labels.grid, grid):
        raise InputError(f"{labels.name} lies outside {name} in space; check the header of the label map.")


def _overlap(truth: wf.Image, before: wf.Image, after: wf.Image) -> dict[str, Any]:
    first, last = (wf.quality.dice_figures(truth.data[0], labels.data[0]) for labels in (before, after))
    return {
        "dice_mean_before": first.mean,
        "dice_mean_after": last.mean,
        "dice_per_label_before": first.per_label,
        "dice_per_label_after": last.per_label,
    }


def _errors(points: wf.io.Landmarks, found: wf.Registration) -> dict[str, Any]:
    before = wf.quality.target_registration_error(points.fixed, points.moving)
    after = wf.quality.target_registration_error(found.transform.map_points(points.fixed), points.moving)
    grid = found.fixed_grid
    voxel = max(grid.spacing_mm[-grid.ndim :])
    plain = [{"mean": e.mean, "median": e.median, "max": e.max} for e in (before, after)]
    return {
        "count": len(points.fixed),
        "before_mm": plain[0],
        "after_mm": plain[1],
        "further": int((after.per_point > before.per_point + voxel).sum()),
        "per_point_after_mm": after.per_point.tolist(),
    }

"""Label maps and landmarks that accompany two images: read before a registration, applied and scored after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from warpfactor.checks.inputs import check_landmarks, check_points, lie_apart
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.io import Landmarks, read_labels, read_landmarks
from warpfactor.measure import dice_figures, target_registration_error
from warpfactor.show.wording import sentence, warn_of

if TYPE_CHECKING:
    from warpfactor.registration.result import Registration


@dataclass(frozen=True)
class Companions:
    """Label maps and landmarks of two images; any of them may be missing.

        >>> import warpfactor as wf
        >>> made = wf.phantom.phantom((24, 26, 24))
        >>> result = wf.register(made.fixed, made.moving, recipe="fast")
        >>> labels = [wf.Image.from_array(part) for part in (made.fixed_labels, made.moving_labels)]
        >>> companions = wf.Companions(*labels)
        >>> scores = companions.scores(result, companions.carry(result))
        >>> scores["labels"]["dice_mean_after"] > scores["labels"]["dice_mean_before"]
        True

    Attributes:
        fixed_labels: on the grid of the fixed image.
        moving_labels: in moving space, on any grid.
        moving_labels_path: the file of the moving labels, whose data type the carried labels keep.
        landmarks: corresponding points.
        landmarks_path: the file of the landmarks, if it is to be checked for a wrong convention.
        ras: whether that file was read as RAS.
    """

    fixed_labels: Image | None = None
    moving_labels: Image | None = None
    moving_labels_path: Path | None = None
    landmarks: Landmarks | None = None
    landmarks_path: Path | None = None
    ras: bool = False

    @classmethod
    def read(
        cls,
        fixed_labels: str | Path | None,
        moving_labels: str | Path | None,
        landmarks: str | Path | None,
        *,
        ras: bool = False,
        fixed: Image,
        moving: Image,
    ) -> Companions:
        """Read label maps and landmarks; InputError if they cannot belong to the images.

        Args:
            fixed_labels, moving_labels: label maps of the two images.
            landmarks: CSV file with the columns fixed_x, fixed_y, fixed_z, moving_x, moving_y and moving_z.
            ras: whether the landmarks are RAS instead of LPS.
            fixed, moving: the images.
        """
        if fixed_labels is not None and moving_labels is None:
            raise InputError(
                "Fixed labels score the moving labels that are carried along; give moving labels (--moving-labels) too."
            )
        target = None if fixed_labels is None else read_nonempty_labels(fixed_labels).on_grid(fixed.grid)
        source = None if moving_labels is None else read_nonempty_labels(moving_labels)
        if source is not None:
            check_same_space(source, moving.grid, moving.name)
        if target is not None and source is not None:
            check_common(target, source)
        path = None if moving_labels is None else Path(moving_labels)
        if landmarks is None:
            return cls(target, source, path)
        points = read_landmarks(landmarks, ras=ras)
        inside = check_places(str(landmarks), points, fixed.grid, moving.grid, ras=ras)
        return cls(target, source, path, points, Path(landmarks) if inside else None, ras)

    def carry(self, result: Registration) -> Image | None:
        """The moving labels on the fixed grid; None without moving labels."""
        return None if self.moving_labels is None else result.apply(self.moving_labels, mode="label")

    def scores(self, result: Registration, carried: Image | None) -> dict[str, Any]:
        """Entries for result.json: Dice of the labels and errors of the landmarks, before and after registration.

        Args:
            result: what `register` returned.
            carried: what `carry` returned.
        """
        entries = {}
        if self.fixed_labels is not None and self.moving_labels is not None and carried is not None:
            before = Affine(dimension=result.fixed_grid.ndim).resample(
                self.moving_labels, result.fixed_grid, mode="label", ops=result.ops
            )
            entries["labels"] = _overlap(self.fixed_labels, before, carried)
        if self.landmarks is not None:
            if self.landmarks_path is not None:
                name = str(self.landmarks_path)
                warn_of(check_landmarks(name, self.landmarks, result.transform, ras=self.ras))
            entries["landmarks"] = _errors(self.landmarks, result)
        return entries


def read_nonempty_labels(path: str | Path) -> Image:
    """A label map; InputError if it has no label."""
    labels = read_labels(path)
    if not bool(labels.data.any()):
        raise InputError(f"{labels.name}: the label map is empty; at least one voxel must have a label.")
    return labels


def check_same_space(labels: Image, grid: Grid, name: str) -> None:
    """InputError if a label map does not overlap the image it belongs to; their grids may differ."""
    if labels.grid.ndim != grid.ndim:
        raise InputError(
            f"{labels.name} is {labels.grid.ndim}-D and {name} is {grid.ndim}-D; give a label map of this image."
        )
    if lie_apart(labels.grid, grid):
        raise InputError(f"{labels.name} lies outside {name} in space; check the header of the label map.")


def common_labels(fixed: Image, moving: Image) -> tuple[int, ...]:
    """The labels that two maps both have, other than 0."""
    both = (set(torch.unique(labels.data).tolist()) for labels in (fixed, moving))
    return tuple(sorted(set.intersection(*both) - {0}))


def check_common(fixed: Image, moving: Image) -> None:
    """InputError if two label maps share no label, so that nothing of them can be compared."""
    if not common_labels(fixed, moving):
        raise InputError(
            f"{fixed.name} and {moving.name} have no label in common; give maps that use the same numbers for the "
            "same structures."
        )


def check_places(name: str, points: Landmarks, fixed: Grid, moving: Grid, *, ras: bool = False) -> bool:
    """Whether all landmarks lie in their images; a warning if some do not, and InputError if none does.

    Args:
        name: of the file they were read from.
        ras: whether they were read as RAS.
    """
    sides = ((points.fixed, fixed, "fixed"), (points.moving, moving, "moving"))
    outside = [notice for side, grid, space in sides for notice in check_points(name, side, grid, space, ras=ras)]
    for notice in outside:
        if notice.facts["outside"] == notice.facts["count"]:
            raise InputError(sentence(notice))
    warn_of(outside)
    return not outside


def _overlap(truth: Image, before: Image, after: Image) -> dict[str, Any]:
    first, last = (dice_figures(truth.data[0], labels.data[0]) for labels in (before, after))
    return {
        "dice_mean_before": first.mean,
        "dice_mean_after": last.mean,
        "dice_per_label_before": first.per_label,
        "dice_per_label_after": last.per_label,
    }


def _errors(points: Landmarks, result: Registration) -> dict[str, Any]:
    before = target_registration_error(points.fixed, points.moving)
    after = target_registration_error(result.transform.map_points(points.fixed), points.moving)
    grid = result.fixed_grid
    voxel = max(grid.spacing_mm[-grid.ndim :])
    plain = [{"mean": e.mean, "median": e.median, "max": e.max} for e in (before, after)]
    return {
        "count": len(points.fixed),
        "before_mm": plain[0],
        "after_mm": plain[1],
        "further": int((after.per_point > before.per_point + voxel).sum()),
        "per_point_after_mm": after.per_point.tolist(),
    }

"""Case: everything that is known about one registration when it is checked and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from warpfactor.checks.inputs import looks_like_labels
from warpfactor.errors import Notice
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.kernels.ops import Ops
from warpfactor.measure import dice_figures

MASKS = ("fixed_mask", "moving_mask")
NOT_REGISTERING = ("report", "write", "total")  # parts of the time that are not the registration itself


@dataclass(frozen=True)
class Case:
    """A registration to check and to report on.

    Attributes:
        fixed, moving: the images, if they are available. Only the first channel is used.
        fixed_mask, moving_mask: the masks of the registration, if there were any.
        warped: the moving image on the fixed grid, as saved; used where `moving` is not available.
        affine, warp, inverse_warp: the transform, as in Registration.
        fixed_grid: the grid of the fixed image.
        entries: the content of result.json.
        missing: why an image is not available, for "fixed" and "moving".
        ops: the backend that computes the checks.
        changed: for the images that are shown, which are not the files that were registered.
    """

    fixed: Image | None
    moving: Image | None
    fixed_mask: Image | None
    moving_mask: Image | None
    warped: Image | None
    affine: Affine
    warp: Warp | None
    inverse_warp: Warp | None
    fixed_grid: Grid
    entries: Mapping[str, Any]
    missing: Mapping[str, Notice]
    ops: Ops
    changed: Mapping[str, Notice] = field(default_factory=dict)

    @property
    def transform(self) -> Transform:
        """The whole transform, fixed to moving."""
        return self.affine if self.warp is None else Chain((self.warp, self.affine), "fixed", "moving")

    @property
    def after(self) -> tuple[Image, Transform] | None:
        """An image and the transform that resamples it to the registered moving image; None without any image."""
        if self.moving is not None:
            return self.moving, self.transform
        return None if self.warped is None else (self.warped, Affine(dimension=self.fixed_grid.ndim))

    @property
    def planar(self) -> bool:
        """Whether the images are single slices."""
        return self.fixed_grid.shape[0] == 1

    @cached_property
    def label_maps(self) -> bool:
        """Whether both images are label maps, which are registered to each other on purpose."""
        images = [image for image in (self.fixed, self.moving) if image is not None]
        return len(images) == 2 and all(looks_like_labels(image) for image in images)

    @property
    def masked(self) -> bool:
        """Whether a mask was given, even if its file is no longer available."""
        inputs = self.entries.get("inputs") or {}
        return self.fixed_mask is not None or self.moving_mask is not None or any(name in inputs for name in MASKS)


def registration_seconds(seconds: Mapping[str, float]) -> float:
    """The time of a registration without its report and without writing files, from its times by part."""
    return sum(spent for part, spent in seconds.items() if part not in NOT_REGISTERING)


def overlap_of_labels(case: Case) -> dict[str, Any]:
    """Dice of two label maps, registered to each other, before and after: as the entry "labels" of result.json."""
    assert case.fixed is not None
    assert case.moving is not None
    identity, grid = Affine(dimension=case.fixed_grid.ndim), case.fixed_grid
    before, after = (
        dice_figures(case.fixed.data[0], through.resample(case.moving, grid, mode="nearest", ops=case.ops).data[0])
        for through in (identity, case.transform)
    )
    return {
        "dice_mean_before": before.mean,
        "dice_mean_after": after.mean,
        "dice_per_label_before": before.per_label,
        "dice_per_label_after": after.per_label,
    }

"""What the report shows of a case: stacks of slices before and after, maps of the warp, and the lines of its grid."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warpfactor.grid import Grid
from warpfactor.image import Image
from warpfactor.report.case import Case
from warpfactor.report.coarse import Region, sample
from warpfactor.report.planes import Plane, choose_planes
from warpfactor.report.sheets import Bytes, Stack
from warpfactor.resample import VoxelMap, resample_through
from warpfactor.transform import Affine, Transform, Warp

WINDOW = (0.005, 0.997)  # quantiles that become black and white
LINES = 40  # of the deformed grid, along the longer side of a picture
LOG_RANGE = 2.0  # of the base-2 logarithm of the Jacobian: from a quarter to four times the volume
TOP = 0.997  # quantile of a map that has the last colour
LEAST_ERROR_VOX = 0.25  # an inverse error below this is not made to look large


@dataclass(frozen=True)
class Map:
    """A quantity on the slices, and what its first and last grey level stand for."""

    stack: Stack
    low: float
    high: float


@dataclass(frozen=True)
class Lines:
    """Where the points of a regular grid go, per plane: (slice, row, column, 2) signed steps in `unit` pixels."""

    pitch: int
    unit: float
    steps: NDArray[np.int8]

    def to_dict(self) -> dict[str, Any]:
        _, rows, columns, _ = self.steps.shape
        data = base64.b64encode(self.steps.tobytes()).decode("ascii")
        return {"pitch": self.pitch, "unit": self.unit, "rows": rows, "columns": columns, "data": data}


@dataclass(frozen=True)
class Views:
    """All pictures of a case.

    Attributes:
        planes: where they lie.
        images: stacks "fixed", "before", "affine", "after", as far as there are any and they differ.
        maps: "jacobian", "displacement", "error" by name; none without a warp.
        folds: where the Jacobian is not positive: 255.
        lines: of the deformed grid, per plane.
    """

    planes: Sequence[Plane]
    images: Sequence[Stack]
    maps: dict[str, Map]
    folds: Stack | None
    lines: Sequence[Lines]


def show(case: Case, region: Region, jacobian: Image | None) -> Views:
    """All pictures of a case.

    Args:
        region: what the fixed image shows.
        jacobian: determinant of its warp, if it has one.
    """
    planes = choose_planes(case.fixed_grid, region.box())
    images = _image_stacks(case, planes)
    if case.warp is None or jacobian is None:
        return Views(planes, images, {}, None, ())
    still = Affine(dimension=case.fixed_grid.ndim)
    determinants = [_fold_proof(jacobian, still, plane.grid) for plane in planes]
    places = [case.warp.on_grid(plane.grid) for plane in planes]
    moved = [place.displacement for place in places if place.displacement is not None]
    maps = {"jacobian": _jacobian_map(determinants), "displacement": _length_map("displacement", moved, planes)}
    if case.inverse_warp is not None:
        back = [round_trip(place, case.inverse_warp, jacobian) for place in places]
        maps["error"] = _length_map("error", back, planes, least=LEAST_ERROR_VOX * min(case.fixed_grid.spacing_mm))
    folds = Stack("folds", [np.where(d <= 0, 255, 0).astype(np.uint8) for d in determinants], exact=True)
    return Views(planes, images, maps, folds, [_lines(step) for step in moved])


def _image_stacks(case: Case, planes: Sequence[Plane]) -> list[Stack]:
    """The fixed image, and the moving one under every transform that changes something."""
    still = Affine(dimension=case.fixed_grid.ndim)
    stacks = [] if case.fixed is None else _grey([("fixed", case.fixed, still)], planes)
    if case.after is None:
        return stacks
    image, transform = case.after
    shown: list[tuple[str, Image, Transform]] = [("after", image, transform)]
    if case.moving is not None:
        if case.warp is not None and not np.allclose(case.affine.matrix, np.eye(4)):
            shown.append(("affine", image, case.affine))
        shown.append(("before", image, still))
    return [*stacks, *_grey(shown, planes)]


def _grey(shown: Sequence[tuple[str, Image, Transform]], planes: Sequence[Plane]) -> list[Stack]:
    """Stacks of one image under several transforms, all with the window of the first."""
    first = [[sample(_one(image), t, plane.grid, slices=True)[0] for plane in planes] for _, image, t in shown[:1]]
    others = [[sample(_one(image), t, plane.grid, slices=True)[0] for plane in planes] for _, image, t in shown[1:]]
    known = torch.cat([part[torch.isfinite(part)].flatten() for part in first[0]])
    low, high = np.quantile(known.numpy(), WINDOW) if known.numel() else (0.0, 1.0)
    return [
        Stack(name, [_levels(part, float(low), float(high)) for part in parts])
        for (name, _, _), parts in zip(shown, [*first, *others], strict=True)
    ]


def _one(image: Image) -> Image:
    return image if image.channels == 1 else Image(image.data[:1], image.grid, image.name)


def _levels(values: Tensor, low: float, high: float) -> Bytes:
    """Grey levels of values; what is not known is black."""
    scaled = (torch.nan_to_num(values, nan=low) - low) * (255 / max(high - low, 1e-12))
    return scaled.clamp_(0, 255).round_().to(torch.uint8).numpy()


def _fold_proof(jacobian: Image, still: Transform, grid: Grid) -> NDArray[Any]:
    """Determinants on a plane, one voxel each: an average would hide a fold."""
    return still.resample(jacobian, grid, mode="nearest", outside=1.0).data[0].numpy()


def _jacobian_map(determinants: Sequence[NDArray[Any]]) -> Map:
    least = 2.0 ** (-LOG_RANGE)
    logs = [torch.from_numpy(np.log2(np.maximum(d, least))) for d in determinants]
    levels = [_levels(part, -LOG_RANGE, LOG_RANGE) for part in logs]
    return Map(Stack("jacobian", levels), -LOG_RANGE, LOG_RANGE)


def round_trip(there: VoxelMap, inverse: Warp, jacobian: Image) -> Tensor:
    """(3, *grid.shape) what is left of x after going there and back, in voxels of the grid; NaN where it leaves."""
    back = inverse.follow(there).displacement
    assert back is not None
    stays = torch.isfinite(resample_through(jacobian, there, outside=math.nan).data[0])
    return torch.where(stays, back, math.nan)


def _length_map(name: str, fields: Sequence[Tensor], planes: Sequence[Plane], least: float = 0.0) -> Map:
    """Lengths in mm of displacements in voxels of the planes."""
    lengths = [lengths_mm(field, plane.grid) for field, plane in zip(fields, planes, strict=True)]
    known = np.concatenate([part[np.isfinite(part)] for part in lengths])
    high = max(float(np.quantile(known, TOP)) if known.size else 0.0, least, 1e-6)
    return Map(Stack(name, [_levels(torch.from_numpy(part), 0.0, high) for part in lengths]), 0.0, high)


def lengths_mm(field: Tensor, grid: Grid) -> NDArray[np.float32]:
    """(D, H, W) lengths in mm of a displacement in voxels of `grid`."""
    squared = torch.zeros_like(field[0], dtype=torch.float32)
    for row in grid.matrix[:3, :3].tolist():
        squared += sum(weight * part for weight, part in zip(row, field, strict=True)).square_()
    lengths: NDArray[np.float32] = squared.sqrt_().numpy()
    return lengths


def _lines(field: Tensor) -> Lines:
    """In-plane steps of the points of a regular grid of lines."""
    _, _, height, width = field.shape
    pitch = max(2, math.ceil(max(height, width) / LINES))
    picked = field[1:, :, pitch // 2 :: pitch, pitch // 2 :: pitch].permute(1, 2, 3, 0)
    unit = max(float(picked.abs().max()) / 127, 1e-6)
    return Lines(pitch, unit, (picked / unit).round().to(torch.int8).numpy())

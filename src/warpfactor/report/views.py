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
from warpfactor.report.coarse import Region, parts, sample
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
    made = [_on_plane(case.warp, case.inverse_warp, jacobian, plane.grid) for plane in planes]
    maps = {
        "jacobian": Map(Stack("jacobian", [part.jacobian for part in made]), -LOG_RANGE, LOG_RANGE),
        "displacement": _length_map("displacement", [part.lengths_mm for part in made]),
    }
    if case.inverse_warp is not None:
        least = LEAST_ERROR_VOX * min(case.fixed_grid.spacing_mm)
        maps["error"] = _length_map("error", [part.errors_mm for part in made], least)
    folds = Stack("folds", [part.folds for part in made], exact=True)
    return Views(planes, images, maps, folds, [part.lines for part in made])


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
    """Stacks of one image under several transforms, all with the window of the first one in the first plane."""
    _, image, transform = shown[0]
    first = torch.cat([_sampled(image, transform, part) for part in parts(planes[0].grid)])
    known = first[torch.isfinite(first)].numpy()
    low, high = np.quantile(known, WINDOW).tolist() if known.size else (0.0, 1.0)
    return [
        Stack(name, [_grey_plane(image, transform, plane.grid, low, high) for plane in planes])
        for name, image, transform in shown
    ]


def _grey_plane(image: Image, transform: Transform, grid: Grid, low: float, high: float) -> Bytes:
    return np.concatenate([_levels(_sampled(image, transform, part), low, high) for part in parts(grid)])


def _sampled(image: Image, transform: Transform, grid: Grid) -> Tensor:
    """(slice, row, column) of the first channel."""
    return sample(_one(image), transform, grid, slices=True)[0]


def _one(image: Image) -> Image:
    return image if image.channels == 1 else Image(image.data[:1], image.grid, image.name)


def _levels(values: Tensor, low: float, high: float) -> Bytes:
    """Grey levels of values; what is not known is black."""
    scaled = (torch.nan_to_num(values, nan=low) - low) * (255 / max(high - low, 1e-12))
    return scaled.clamp_(0, 255).round_().to(torch.uint8).numpy()


@dataclass(frozen=True)
class _OnPlane:
    """What a warp does on one plane: (slice, row, column) levels of the Jacobian, folds, lengths; and its lines."""

    jacobian: Bytes
    folds: Bytes
    lengths_mm: NDArray[np.float32]
    errors_mm: NDArray[np.float32]
    lines: Lines


def _on_plane(warp: Warp, inverse: Warp | None, jacobian: Image, grid: Grid) -> _OnPlane:
    """Slice by slice, since a whole plane of vectors is large."""
    pitch = max(2, math.ceil(max(grid.shape[1:]) / LINES))
    still = Affine(dimension=grid.ndim)
    found = []
    for part in parts(grid):
        place = warp.on_grid(part)
        assert place.displacement is not None
        # One voxel for each pixel: an average would hide a fold.
        determinant = still.resample(jacobian, part, mode="nearest", outside=1.0).data[0]
        error = np.zeros(part.shape, np.float32)
        if inverse is not None:
            error = lengths_mm(round_trip(place, inverse, jacobian), part)
        logs = determinant.clamp(min=2.0**-LOG_RANGE).log2()
        found.append(
            (
                _levels(logs, -LOG_RANGE, LOG_RANGE),
                np.where(determinant.numpy() <= 0, 255, 0).astype(np.uint8),
                lengths_mm(place.displacement, part),
                error,
                place.displacement[1:, :, pitch // 2 :: pitch, pitch // 2 :: pitch].permute(1, 2, 3, 0).numpy().copy(),
            )
        )
    levels, folds, lengths, errors, steps = (np.concatenate(column) for column in zip(*found, strict=True))
    return _OnPlane(levels, folds, lengths, errors, _lines(steps, pitch))


def round_trip(there: VoxelMap, inverse: Warp, jacobian: Image) -> Tensor:
    """(3, *grid.shape) what is left of x after going there and back, in voxels of the grid; NaN where it leaves."""
    back = inverse.follow(there).displacement
    assert back is not None
    stays = torch.isfinite(resample_through(jacobian, there, outside=math.nan).data[0])
    return torch.where(stays, back, math.nan)


def _length_map(name: str, lengths: Sequence[NDArray[np.float32]], least: float = 0.0) -> Map:
    """Lengths in mm as levels from zero to nearly the longest, or to `least`."""
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


def _lines(steps: NDArray[np.float32], pitch: int) -> Lines:
    """In-plane steps of the points of a regular grid of lines, as small numbers."""
    unit = max(float(np.abs(steps).max()) / 127, 1e-6)
    return Lines(pitch, unit, np.round(steps / unit).astype(np.int8))

"""Deliberately hard pairs for the linear stages: turned, scaled, cut in half, noisy, of another contrast, large.

Every pair is made from one image, so that the true map is known: moving(A x) = contrast(fixed(x)). Real images are used
where a folder with them is given; phantoms stand in for them otherwise. `bench/score/hard.py` runs and scores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.io import read_image
from warpfactor.phantom import phantom
from warpfactor.stages.linear.motion import about, centre_of
from warpfactor.stages.linear.starts import rotation

AWAY = (0.05, -0.06, 0.07)  # of the extent: how far the frame is shifted, so that no centre lies on another
SHIFT = (0.03, -0.03, 0.04)  # of the extent: the shift of the object itself
LARGEST_PHANTOM = 1024  # px; larger slices are magnified from it


@dataclass(frozen=True)
class HardPair:
    """One pair.

    Attributes:
        name: for the table.
        source: of the fixed image: "slice 200" (a phantom of that many pixels), "volume", or a file below the folder.
        degrees, axis: turn, about an axis (x, y, z) through the middle; of slices about their normal.
        scale: of the moving object, in units of the fixed one's.
        contrast: a name in CONTRASTS.
        half: None; "cut x" or "cut y", the frame ends in the middle; "empty x", half of it is background.
        noise: SD in units of the intensity range.
    """

    name: str
    source: str
    degrees: float = 0.0
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
    scale: float = 1.0
    contrast: str = "same"
    half: str | None = None
    noise: float = 0.02


CONTRASTS: dict[str, Callable[[Tensor], Tensor]] = {
    "same": lambda v: v,
    "inverted": lambda v: 1 - v,
    "inverted object": lambda v: torch.where(v > 0.03, 1.05 - v, v),
    "wave": lambda v: 0.8 * torch.sin(1.5 * math.pi * v) ** 2 + 0.2 * v,
    "bump": lambda v: torch.exp(-(((v - 0.45) / 0.18) ** 2)),
}


def hard_pairs(folder: Path | None = None) -> list[HardPair]:
    """Sixty pairs; those of real images only if a folder like the project's evaluation data is given."""
    real = [case for case in _real_cases() if folder is not None and (folder / case.source).exists()]
    return [*_slice_cases(), *_volume_cases(), *(real or _stand_ins())]


def _slice_cases() -> Iterator[HardPair]:
    for width in (200, 512, 1024, 2000, 8000):
        for degrees in (45, 90, 180):
            yield HardPair(f"{width} px, turned {degrees}", f"slice {width}", degrees)
    for scale, degrees in ((0.6, 0), (0.6, 135), (0.8, 135), (1.3, 0), (1.6, 0), (1.6, 135)):
        yield HardPair(f"512 px, scale {scale}, turned {degrees}", "slice 512", degrees, scale=scale)
    for half, degrees in (("cut x", 0), ("cut y", 45), ("empty x", 0), ("empty x", 45)):
        yield HardPair(f"512 px, {half}, turned {degrees}", "slice 512", degrees, half=half)
    for noise, degrees in ((0.2, 90), (0.5, 45)):
        yield HardPair(f"512 px, noise {noise}, turned {degrees}", "slice 512", degrees, noise=noise)
    for contrast, degrees in (("inverted", 45), ("inverted object", 180), ("wave", 0), ("wave", 90), ("bump", 45)):
        yield HardPair(f"512 px, {contrast}, turned {degrees}", "slice 512", degrees, contrast=contrast)


def _volume_cases() -> Iterator[HardPair]:
    for degrees, axis in ((45, (1, 0, 0)), (90, (0, 1, 0)), (180, (0, 0, 1)), (90, (1, 1, 1)), (180, (1, 1, 0))):
        yield HardPair(f"volume, turned {degrees} about {axis}", "volume", degrees, axis)
    for scale, degrees in ((0.6, 0), (1.6, 0), (0.7, 60)):
        yield HardPair(f"volume, scale {scale}, turned {degrees}", "volume", degrees, (1, 2, 0), scale=scale)
    for half, degrees in (("cut x", 0), ("cut y", 45), ("empty x", 0)):
        yield HardPair(f"volume, {half}, turned {degrees}", "volume", degrees, (1, 0, 0), half=half)
    yield HardPair("volume, noise 0.5, turned 90", "volume", 90, (0, 1, 0), noise=0.5)
    for contrast, degrees in (("inverted", 90), ("inverted object", 0), ("wave", 45), ("bump", 90)):
        yield HardPair(f"volume, {contrast}, turned {degrees}", "volume", degrees, (0, 1, 1), contrast=contrast)


def _real_cases() -> Iterator[HardPair]:
    head, brain = "slices2d/OASIS-TRT-20-3_slice118.nii.gz", "brain/1000_t1_brain.nii.gz"
    lobes, knee = "histology/lobes_he_fixed.nii.gz", "knee/knee_dess1_fixed.nii.gz"
    yield HardPair("head slice, turned 45, wave", head, 45, contrast="wave")
    yield HardPair("head slice, turned 180, inverted", head, 180, contrast="inverted")
    yield HardPair("head slice, cut in half, turned 90", head, 90, half="cut y")
    yield HardPair("lobes, turned 45", lobes, 45, noise=0.1)
    yield HardPair("lobes, turned 180, inverted", lobes, 180, contrast="inverted")
    yield HardPair("brain, turned 90", brain, 90, (1, 0, 0), noise=0.1)
    yield HardPair("brain, turned 180, bump", brain, 180, (0, 0, 1), contrast="bump")
    yield HardPair("brain, scale 0.7, turned 45", brain, 45, (0, 1, 0), scale=0.7)
    yield HardPair("brain, half empty, turned 45", brain, 45, (0, 0, 1), half="empty x")
    yield HardPair("knee, turned 45, inverted", knee, 45, (0, 0, 1), contrast="inverted")
    yield HardPair("mouse, turned 90", "mouse/fvb1_t2_brain.nii.gz", 90, (0, 1, 0))
    yield HardPair("chest, turned 45, wave", "protonlung/0004_h1.nii.gz", 45, (0, 0, 1), contrast="wave")


def _stand_ins() -> Iterator[HardPair]:
    """Twelve more phantoms in place of the real images."""
    for degrees, contrast in ((45, "wave"), (180, "inverted"), (90, "bump"), (30, "inverted object")):
        yield HardPair(f"400 px, {contrast}, turned {degrees}", "slice 400", degrees, contrast=contrast)
        yield HardPair(f"volume, {contrast}, turned {degrees} about x", "volume", degrees, (1, 0, 0), contrast=contrast)
    for scale, degrees in ((0.7, 90), (1.4, 45)):
        yield HardPair(f"400 px, scale {scale}, turned {degrees}", "slice 400", degrees, scale=scale)
        yield HardPair(f"volume, scale {scale}, turned {degrees} about x", "volume", degrees, (1, 0, 0), scale=scale)


def make_pair(case: HardPair, folder: Path | None = None) -> tuple[Image, Image, Matrix]:
    """The fixed and the moving image, and the true map between them (4x4, LPS mm, fixed to moving)."""
    fixed = _fixed(case.source, folder)
    truth = _truth(case, fixed.grid)
    return fixed, _moving(case, fixed, truth), truth


@lru_cache(maxsize=2)
def _fixed(source: str, folder: Path | None) -> Image:
    """The fixed image, from 0 to 1."""
    kind, _, width = source.partition(" ")
    if kind == "slice":
        size = int(width)
        made = phantom((1, *(min(size, LARGEST_PHANTOM),) * 2), displacement_vox=0, seed=size, noise=0.01).fixed
        data = _magnified(made, size)
    elif kind == "volume":
        data = phantom((80, 96, 80), displacement_vox=0, noise=0.01).fixed
    else:
        image = read_image((folder or Path()) / source)
        return Image(_from_0_to_1(image.data[:1]), image.grid, source)
    shape = data.shape[1:] if kind == "slice" else data.shape
    return Image(_from_0_to_1(data[None]), Grid.from_spacing(tuple(shape), 1.0), source)


def _magnified(image: Tensor, width: int) -> Tensor:
    """A slice with more pixels."""
    factor = image.shape[-1] / width
    if factor == 1:
        return image
    matrix = torch.zeros(3, 4, dtype=torch.float64)
    matrix[1, 1] = matrix[2, 2] = factor
    matrix[1:, 3] = (factor - 1) / 2
    ops = kernels.select(image.device)
    found: Tensor = ops.sample(image.contiguous(), None, matrix, shape=(1, width, width), mode="linear", outside=0.0)
    return found


def _from_0_to_1(data: Tensor) -> Tensor:
    some = data.reshape(-1)[:: 1 + data.numel() // 1_000_000]
    low, high = float(torch.quantile(some, 0.001)), float(torch.quantile(some, 0.999))
    return ((data - low) / (high - low)).clamp_(0, 1)


def _truth(case: HardPair, grid: Grid) -> Matrix:
    """Turn and scale about the middle of the grid, then a shift."""
    flat = grid.shape[0] == 1
    axis = np.array((0.0, 0.0, 1.0) if flat else case.axis, dtype=np.float64)
    turn = rotation(axis / np.linalg.norm(axis), math.radians(case.degrees))
    scale = np.diag([case.scale, case.scale, 1.0 if flat else case.scale])
    shift = grid.matrix[:3, :3] @ (np.array(SHIFT) * grid.shape * (np.array(grid.shape) > 1))
    middle = centre_of(grid)
    return about(middle, turn @ scale, middle + shift)


def _moving(case: HardPair, fixed: Image, truth: Matrix) -> Image:
    """The fixed image carried by the truth onto a frame of its own, in another contrast, with noise."""
    shape = _frame(case, fixed.grid)
    target = (truth @ np.append(centre_of(fixed.grid), 1.0))[:3]
    away = fixed.grid.matrix[:3, :3] @ (np.array(AWAY) * shape * (np.array(shape) > 1))
    matrix = fixed.grid.matrix.copy()
    matrix[:3, 3] += target + away - centre_of(Grid(shape, matrix, fixed.grid.ndim))
    grid = Grid(shape, matrix, fixed.grid.ndim)
    through = grid.voxel_map(fixed.grid, np.asarray(np.linalg.inv(truth), dtype=np.float64))
    if shape[0] == 1:
        through[0] = 0.0
    ops = kernels.select("cpu")
    edge = float(fixed.data[0, 0, 0, 0])
    data = ops.sample(fixed.data[0].contiguous(), None, through, shape=shape, mode="linear", outside=edge)
    data = CONTRASTS[case.contrast](data)
    if case.half is not None:
        data, grid = _halved(case.half, data, grid, float(CONTRASTS[case.contrast](torch.tensor([edge]))[0]))
    generator = torch.Generator().manual_seed(0)
    data = data + case.noise * torch.randn(data.shape, generator=generator)
    return Image(data[None].float(), grid, "moving")


def _frame(case: HardPair, grid: Grid) -> tuple[int, int, int]:
    """Voxels of the moving image: as large along all axes as the fixed one's longest, and as the object needs."""
    if grid.shape[0] == 1:
        most = round(max(grid.shape) * max(1.0, case.scale))
        return 1, most, most
    longest_mm = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True)) * max(1.0, case.scale)
    sizes = [round(longest_mm / s) for s in grid.spacing_mm]
    return sizes[0], sizes[1], sizes[2]


def _halved(half: str, data: Tensor, grid: Grid, background: float) -> tuple[Tensor, Grid]:
    """Half of the frame, or the frame with half of it empty."""
    what, _, letter = half.partition(" ")
    axis = "zyx".index(letter)
    middle = data.shape[axis] // 2
    if what == "empty":
        data = data.clone()
        data.narrow(axis, 0, middle).fill_(background)
        return data, grid
    matrix = grid.matrix.copy()
    matrix[:3, 3] += middle * matrix[:3, axis]
    data = data.narrow(axis, middle, data.shape[axis] - middle).contiguous()
    return data, Grid((data.shape[0], data.shape[1], data.shape[2]), matrix, grid.ndim)

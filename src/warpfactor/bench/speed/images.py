"""Image pairs for the speed benchmark: cubes of smooth random texture, the moving one shifted."""

from __future__ import annotations

from pathlib import Path

import torch

import warpfactor as wf
from warpfactor import kernels

COARSE = 4  # voxels between the random numbers that are interpolated
SHIFT_VOX = 1.5


def make_pair(size: int) -> tuple[wf.Image, wf.Image]:
    """Fixed and moving image of size³ voxels. Nothing else of that size is allocated."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand((1, *(size // COARSE + 3,) * 3), generator=generator)
    ops = kernels.select("cpu")
    scale = (1 / COARSE,) * 3
    data = [ops.resize(coarse, (size,) * 3, scale, (0.5 + shift / COARSE,) * 3) for shift in (0.0, SHIFT_VOX)]
    grid = wf.Grid.from_spacing((size,) * 3, 1.0)
    return wf.Image(data[0], grid, "fixed"), wf.Image(data[1], grid, "moving")


def write_pair(size: int, folder: Path) -> tuple[Path, Path]:
    """Write such a pair as two uncompressed files and return their paths."""
    paths = folder / "fixed.nii", folder / "moving.nii"
    for image, path in zip(make_pair(size), paths, strict=True):
        wf.write_image(image, path)
    return paths

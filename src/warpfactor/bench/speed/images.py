"""Pairs to measure on: cubes of smooth random texture, one shifted against the other; or two files and their affine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import warpfactor as wf
from warpfactor import kernels
from warpfactor.geometry.grid import Matrix
from warpfactor.scene.scene import Scene, make_scene

COARSE = 4  # voxels between the random numbers that are interpolated
SHIFT_VOX = 1.5


def make_pair(size: int) -> tuple[wf.Image, wf.Image]:
    """Two images of size^3 voxels; only these two are ever in memory."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand((1, *(size // COARSE + 3,) * 3), generator=generator)
    ops = kernels.select("cpu")
    scale = (1 / COARSE,) * 3
    data = [ops.resize(coarse, (size,) * 3, scale, (0.5 + shift / COARSE,) * 3) for shift in (0.0, SHIFT_VOX)]
    grid = wf.Grid.from_spacing((size,) * 3, 1.0)
    return wf.Image(data[0], grid, "fixed"), wf.Image(data[1], grid, "moving")


def scene_of(size: int, fixed: str, moving: str) -> tuple[Scene, Matrix]:
    """What the deformable stage starts from: the images and the affine between them."""
    if size:
        return make_scene(*make_pair(size)), np.eye(4)
    found = wf.register(fixed, moving, recipe="affine")
    return make_scene(wf.read_image(fixed), wf.read_image(moving)), np.asarray(found.affine.matrix)


def write_pair(size: int, folder: Path) -> tuple[Path, Path]:
    """The pair as two files without compression."""
    paths = folder / "fixed.nii", folder / "moving.nii"
    for image, path in zip(make_pair(size), paths, strict=True):
        wf.write_image(image, path)
    return paths

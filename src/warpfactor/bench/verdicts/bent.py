"""Pairs that are made of one real image: the moving one is bent by a known smooth map, in another contrast, with noise.

Images that have neither labels nor landmarks can be used this way, such as whole heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from warpfactor.bench.data.hard import CONTRASTS
from warpfactor.bench.verdicts.results import draw_of
from warpfactor.bench.verdicts.trial import PairSource, TrialPair, shrunk, small_spacing
from warpfactor.bench.verdicts.truth import PointTruth, side_mm
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.io import Landmarks, read_image
from warpfactor.stages.linear.motion import about, centre_of
from warpfactor.stages.linear.starts import rotation

KIND = "bent"
FILES = (  # of half 1 and of half 2
    ("head/1000_t1_head_2mm.nii.gz", "head/1001_t1_head_2mm.nii.gz"),
    ("slices2d/elastix_CT_2D_head_fixed.mha", "slices2d/elastix_CT_2D_head_moving.mha"),
    ("multimodal/rniftyreg_flash_t1.nii.gz", "multimodal/rniftyreg_epi_t2.nii.gz"),
    ("lung/lung_fixed.nii.gz", "lung/lung_moving.nii.gz"),
    ("liver/s18_fixed_exh.nii.gz", "liver/s19_fixed_exh.nii.gz"),
    ("knee/knee_dess1_fixed.nii.gz", "knee/knee_dess2_moving.nii.gz"),
    ("contrast/ms_t2_fixed.nii.gz", "contrast/ms_pd_moving.nii.gz"),
    ("macaque/macaque_nmt_brain.nii.gz", "macaque/macaque_inia19_brain.nii.gz"),
    ("protonlung/0004_h1.nii.gz", "protonlung/0011_h1.nii.gz"),
    ("histology/lobes_he_fixed.nii.gz", "histology/kidney_he_fixed.nii.gz"),
)
LOOKS = ("same", "inverted object")  # in turn
NOISE = 0.03  # SD in units of the intensity range
BEND, DEGREES, SHIFT = 0.02, 8.0, 0.04  # SD of the warp and largest shift, as shares of the longest side
POINTS = 100  # landmarks, about
CONTROL = 5  # random vectors along each axis
OBJECT = 0.15  # of the intensity range, above which there is something


def bent_pairs(folder: Path) -> Iterator[PairSource]:
    """One pair of every image that the folder has."""
    for number, files in enumerate(FILES):
        for half, name in enumerate(files, start=1):
            if (folder / name).is_file():
                look = LOOKS[(number + half) % len(LOOKS)]
                title = f"{KIND}: {Path(name).name.partition('.')[0]}, {look}"
                yield PairSource(title, KIND, partial(_bent_pair, title, folder / name, look), half)


def _bent_pair(title: str, path: Path, look: str) -> TrialPair:
    image = read_image(path)
    fixed = _from_0_to_1(shrunk(image, small_spacing(image.grid)))
    draw = draw_of(title)
    back = bend_of(fixed.grid, draw)
    seen = back.resample(fixed, fixed.grid, outside=float(fixed.data.min()))
    noise = torch.from_numpy(draw.normal(0, NOISE, tuple(seen.data.shape))).float()
    moving = Image(CONTRASTS[look](seen.data) + noise, fixed.grid, "moving")
    index = torch.nonzero(seen.data[0] > OBJECT).numpy()
    points = fixed.grid.index_to_world(index[:: 1 + len(index) // POINTS])
    truth = PointTruth(
        _inside(Landmarks(back.map_points(points), points), fixed.grid), side_mm(fixed.grid), chosen=False
    )
    return TrialPair(title, KIND, fixed, moving, truth)


def _inside(points: Landmarks, grid: Grid) -> Landmarks:
    """Those that the fixed image shows; where it ends nothing can be found."""
    index = grid.world_to_index(points.fixed)
    there = np.all((index > -0.5) & (index < np.array(grid.shape) - 0.5), axis=1)
    return Landmarks(points.fixed[there], points.moving[there])


def bend_of(grid: Grid, draw: np.random.Generator) -> Transform:
    """A random smooth map of a grid, a turn and a shift with it; from the moving to the fixed image."""
    coarse = [1 if n == 1 else CONTROL for n in grid.shape]
    values = torch.from_numpy(draw.normal(0, 1, (1, 3, *coarse))).float()
    field = torch.nn.functional.interpolate(values, size=grid.shape, mode="trilinear", align_corners=True)[0]
    field *= BEND * side_mm(grid) / float(field.std()) / torch.tensor(grid.spacing_mm).float().reshape(3, 1, 1, 1)
    flat = grid.shape[0] == 1
    axis = np.array((0.0, 0.0, 1.0)) if flat else draw.normal(0, 1, 3)
    shift = draw.uniform(-SHIFT, SHIFT, 3) * side_mm(grid)
    if flat:
        field[0], shift[2] = 0.0, 0.0
    turn = rotation(axis / np.linalg.norm(axis), math.radians(draw.uniform(-DEGREES, DEGREES)))
    middle = centre_of(grid)
    matrix = about(middle, turn, middle + shift)
    return Chain((Warp(field, grid), Affine(matrix, dimension=grid.ndim)), "moving", "fixed")


def _from_0_to_1(image: Image) -> Image:
    low, high = (float(torch.quantile(image.data.float(), q)) for q in (0.001, 0.999))
    return Image(((image.data.float() - low) / (high - low)).clamp_(0, 1), image.grid, image.name)

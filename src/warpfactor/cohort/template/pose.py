"""Where the mean of a group lies: the person to begin with, the grid, and the plane between left and right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from warpfactor.cohort.job import JobOptions
from warpfactor.cohort.table.row import CohortRow
from warpfactor.cohort.template.average import Place
from warpfactor.cohort.template.matrices import mirror, square_root
from warpfactor.cohort.template.settings import TemplateSettings
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.io import read_image
from warpfactor.registration.run import register
from warpfactor.scene.object import foreground


def median_person(rows: Sequence[CohortRow]) -> CohortRow:
    """The person whose object has the median volume."""
    sizes = []
    for row in rows:
        image = read_image(row.moving[0])
        voxel = abs(float(np.linalg.det(image.grid.matrix[:3, :3])))
        sizes.append(float(foreground(torch.nan_to_num(image.data), None).sum()) * voxel)
    order = sorted(range(len(rows)), key=sizes.__getitem__)
    return rows[order[(len(order) - 1) // 2]]


def moved(grid: Grid, matrix: Matrix) -> Grid:
    """A grid whose middle lies where a matrix takes it."""
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])
    moved = grid.matrix.copy()
    moved[:3, 3] += (Affine(matrix, dimension=grid.ndim).map_points(centre) - centre)[0]
    return Grid(grid.shape, moved, grid.ndim)


def linear(matrices: Mapping[str, Matrix], ndim: int) -> Place:
    """Where everybody is by affines alone."""
    return lambda row: Affine(matrices[row.name], dimension=ndim)


def symmetric(image: Image, settings: TemplateSettings) -> Image:
    """The mean of an image and its mirror image, if that is asked for."""
    if not settings.symmetric:
        return image
    return replace(image, data=(image.data + _mirrored(image).data) / 2)


def _mirrored(image: Image) -> Image:
    flip = Affine(mirror(image.grid), dimension=image.grid.ndim)
    return flip.resample(image, image.grid, outside=float(image.data.amin()))


def upright(image: Image, options: JobOptions) -> Matrix:
    """The rigid motion that puts the plane between left and right into the middle of the grid.

    If T takes the mirror image onto the image, its square root goes half of the way, to where the two agree.
    """
    rigid = {"linear.dof": "rigid", "deformable": None}
    found = register(_mirrored(image), image, recipe="affine", overrides=rigid, threads=options.threads)
    root = square_root(found.affine.matrix)
    return np.eye(4) if root is None else root

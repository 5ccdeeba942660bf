"""Phantom pairs that are registered in a second, and ways to break the result, for the tests of the report."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

import warpfactor as wf

SPACING_MM = 2.0
SOLID, FLAT = (32, 36, 32), (1, 96, 80)
FEW = {"deformable.levels": [4, 2, 1], "deformable.iterations": [30, 20, 10]}


class Pair(NamedTuple):
    """Two images, their labels, and the result of registering them."""

    fixed: wf.Image
    moving: wf.Image
    fixed_labels: wf.Image
    moving_labels: wf.Image
    found: wf.Registration


@cache
def registered(shape=SOLID, contrast="t1", recipe="default", mirrored=False, seed=1):
    """A phantom pair, registered; the moving image mirrored from left to right if asked for."""
    made = wf.phantom.phantom(shape, contrast=contrast, seed=seed, displacement_vox=2.5)
    grid = wf.Grid.from_spacing(shape if shape[0] > 1 else shape[1:], SPACING_MM)
    fixed, moving, first, second = (
        wf.Image(data[None], grid, name)
        for name, data in (
            ("fixed.nii.gz", made.fixed),
            ("moving.nii.gz", made.moving.flip(2) if mirrored else made.moving),
            ("fixed_labels.nii.gz", made.fixed_labels),
            ("moving_labels.nii.gz", made.moving_labels),
        )
    )
    settings = FEW if wf.recipe(recipe).deformable is not None else {}
    return Pair(fixed, moving, first, second, wf.register(fixed, moving, recipe=recipe, overrides=settings))


def turned(found, degrees=50.0):
    """The result with an affine that is turned about the middle of the image."""
    angle, grid = np.radians(degrees), found.fixed_grid
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    centre = grid.index_to_world([(np.asarray(grid.shape) - 1) / 2])[0]
    matrix[:3, 3] = centre - matrix[:3, :3] @ centre
    return replace(found, affine=wf.Affine(matrix @ found.affine.matrix, "fixed", "moving", grid.ndim))


def shifted(found, mm=25.0):
    """The result with an affine that is shifted along x; far enough, the fields of view do not meet."""
    matrix = found.affine.matrix.copy()
    matrix[0, 3] += mm
    return replace(found, affine=wf.Affine(matrix, "fixed", "moving", found.fixed_grid.ndim))


def folded(found, rows=6):
    """The result with a warp that runs to and fro along x in a few rows in the middle."""
    field = found.warp.displacement.clone()
    middle = field.shape[2] // 2
    field[2, :, middle - rows // 2 : middle + rows // 2] += 2.0 * torch.sin(1.2 * torch.arange(field.shape[3]))
    return replace(found, warp=wf.Warp(field, found.fixed_grid, "fixed", "fixed"))


def write_images(pair, folder):
    """fixed.nii.gz, moving.nii.gz and their labels in a folder."""
    for image in pair[:4]:
        wf.write_image(image, folder / image.name)


def with_images(found, **images):
    """The result with other images or masks than those that were registered."""
    return replace(found, images=replace(found.images, **images))


def save(found, folder, pair, **options):
    """A result folder beside its images."""
    write_images(pair, folder)
    sources = {"fixed": folder / "fixed.nii.gz", "moving": folder / "moving.nii.gz"}
    return replace(found, run=replace(found.run, sources=sources)).save(folder / "out", **options)

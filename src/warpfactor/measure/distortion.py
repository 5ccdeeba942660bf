"""What the Jacobian determinant does not see of a warp: shear, and folds between neighbouring voxels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from warpfactor.geometry.grid import slabs

LEAST = 1e-3  # determinants are not taken smaller than this where they divide: folds have no shear


class Distortion(NamedTuple):
    """How a warp changes shapes.

    Attributes:
        shear: mean of |F|² / (d det(F)^(2/d)) - 1, F = I + du/dx by central differences, d the number of dimensions; 0
            where a neighbourhood is only turned and scaled, whatever its change of volume.
        folded_one_sided: voxels at which one of the 2^d determinants of one-sided differences is zero or less: every
            corner of a voxel, where central differences look past the voxel itself.
    """

    shear: float
    folded_one_sided: int


def distortion(displacement: Tensor, spacing_mm: Sequence[float], mask: Tensor | None = None) -> Distortion:
    """Shear and one-sided folds of x + u(x), a slab of planes at a time.

    Args:
        displacement: (3, D, H, W), u in voxels; a depth of one is a slice.
        spacing_mm: along z, y, x, as lengths along different axes are compared.
        mask: (D, H, W), not zero where a voxel counts; None counts all.
    """
    total, folded, count = 0.0, 0, 0
    for planes in slabs(displacement.shape[1:]):
        inside = None if mask is None else mask[planes] != 0
        field, first = _with_neighbours(displacement, planes)
        size = planes.stop - planes.start
        shear, folds = _measured(field, spacing_mm)
        shear, folds = shear[first : first + size], folds[first : first + size]
        if inside is not None:
            shear, folds = shear[inside], folds[inside]
        total += float(shear.sum(dtype=torch.float64))
        folded += int(folds.sum())
        count += shear.numel()
    return Distortion(total / count if count else 0.0, folded)


def least_one_sided(displacement: Tensor) -> Tensor:
    """(D, H, W) the least of the 2^d one-sided determinants of every voxel, a slab of planes at a time."""
    least = torch.empty(displacement.shape[1:], dtype=torch.float32, device=displacement.device)
    for planes in slabs(displacement.shape[1:]):
        field, first = _with_neighbours(displacement, planes)
        axes, ahead, back, _ = _slopes(field)
        parts = [_determinant(columns, axes) for columns in _corners(ahead, back)]
        found = torch.stack(parts).amin(0)
        least[planes] = found[first : first + planes.stop - planes.start]
    return least


def _slopes(field: Tensor) -> tuple[list[int], Sequence[Tensor], Sequence[Tensor], list[Tensor]]:
    """The axes there are, and the derivatives of x + u along each: ahead, back and central."""
    axes = [axis for axis in range(3) if field.shape[axis + 1] > 1]
    ahead, back = zip(*(_differences(field, axis) for axis in axes), strict=True)
    return axes, ahead, back, [(a + b) / 2 for a, b in zip(ahead, back, strict=True)]


def _with_neighbours(displacement: Tensor, planes: slice) -> tuple[Tensor, int]:
    """The slab with one more plane at each end, where there is one, and the place of its first plane in it."""
    first = max(planes.start - 1, 0)
    return displacement[:, first : planes.stop + 1].float(), planes.start - first


def _measured(field: Tensor, spacing_mm: Sequence[float]) -> tuple[Tensor, Tensor]:
    """(D, H, W) shear and whether one of the one-sided determinants is not positive."""
    axes, ahead, back, central = _slopes(field)
    squares = torch.zeros_like(field[0])
    for column, j in zip(central, axes, strict=True):
        for i in axes:
            squares += (column[i] * (spacing_mm[i] / spacing_mm[j])) ** 2
    d = len(axes)
    volume = _determinant(central, axes).clamp_(min=LEAST)
    shear = squares / (d * volume ** (2 / d)) - 1
    folds = torch.zeros_like(squares, dtype=torch.bool)
    for columns in _corners(ahead, back):
        folds |= _determinant(columns, axes) <= 0
    return shear, folds


def _corners(ahead: Sequence[Tensor], back: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    for sides in itertools.product((0, 1), repeat=len(ahead)):
        yield [back[k] if side else ahead[k] for k, side in enumerate(sides)]


def _differences(field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """d(x + u)/dx along an axis towards the next voxel and from the last one; at the border the other side's."""
    n = field.shape[axis + 1]
    step = field.diff(dim=axis + 1)
    step[axis] += 1
    index = torch.arange(n, device=field.device)
    ahead = step.index_select(axis + 1, index.clamp(max=n - 2))
    back = step.index_select(axis + 1, (index - 1).clamp(min=0))
    return ahead, back


def _determinant(columns: Sequence[Tensor], axes: Sequence[int]) -> Tensor:
    """Of the matrix whose columns are given, over the axes there are."""
    if len(axes) == 2:
        (a, b), (p, q) = ((column[axes[0]], column[axes[1]]) for column in columns)
        return a * q - b * p
    z, y, x = columns
    found: Tensor = (
        z[0] * (y[1] * x[2] - y[2] * x[1]) - y[0] * (z[1] * x[2] - z[2] * x[1]) + x[0] * (z[1] * y[2] - z[2] * y[1])
    )
    return found

"""How a warp changes shapes, voxel by voxel: shear, and the least determinant of one-sided differences."""

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

LEAST = 1e-3  # determinants are not taken smaller than this where they divide: folds have no shear


@torch.no_grad()
def distortion(displacement: Tensor, spacing: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Shear |F|² / (d det(F)^(2/d)) - 1 and the least of the 2^d one-sided determinants, (D, H, W) each.

    F = I + du/dx by central differences. At the border a one-sided difference is that of the other side; a depth of one
    has no derivative along z, and d is 2.

    Args:
        displacement: (3, D, H, W), u in voxels.
        spacing: along z, y, x, as lengths along different axes are compared.
    """
    axes = [axis for axis in range(3) if displacement.shape[axis + 1] > 1]
    ahead, back = zip(*(_differences(displacement, axis) for axis in axes), strict=True)
    central = [(a + b) / 2 for a, b in zip(ahead, back, strict=True)]
    squares = torch.zeros_like(displacement[0])
    for column, j in zip(central, axes, strict=True):
        for i in axes:
            squares += (column[i] * (spacing[i] / spacing[j])) ** 2
    d = len(axes)
    shear = squares / (d * _determinant(central, axes).clamp_(min=LEAST) ** (2 / d)) - 1
    return shear, torch.stack([_determinant(columns, axes) for columns in _corners(ahead, back)]).amin(0)


def _corners(ahead: Sequence[Tensor], back: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    for sides in itertools.product((0, 1), repeat=len(ahead)):
        yield [back[k] if side else ahead[k] for k, side in enumerate(sides)]


def _differences(field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """d(x + u)/dx along an axis, towards the next voxel and from the last one."""
    n = field.shape[axis + 1]
    step = field.diff(dim=axis + 1)
    step[axis] += 1
    index = torch.arange(n, device=field.device)
    ahead = step.index_select(axis + 1, index.clamp(max=n - 2))
    back = step.index_select(axis + 1, (index - 1).clamp(min=0))
    return ahead, back


def _determinant(columns: Sequence[Tensor], axes: Sequence[int]) -> Tensor:
    """The determinant of the matrix whose columns are given, over the axes there are."""
    if len(axes) == 2:
        (a, b), (p, q) = ((column[axes[0]], column[axes[1]]) for column in columns)
        return a * q - b * p
    z, y, x = columns
    found: Tensor = (
        z[0] * (y[1] * x[2] - y[2] * x[1]) - y[0] * (z[1] * x[2] - z[2] * x[1]) + x[0] * (z[1] * y[2] - z[2] * y[1])
    )
    return found

"""Grids in every orientation, and small images and transforms on them, for the tests of geometry."""

import numpy as np
import torch

from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Warp


def _rotation(degrees: tuple[float, float, float]) -> np.ndarray:
    turn = np.eye(3)
    for axis, angle in enumerate(np.radians(degrees)):
        i, j = [k for k in range(3) if k != axis]
        step = np.eye(3)
        step[i, i] = step[j, j] = np.cos(angle)
        step[i, j], step[j, i] = -np.sin(angle), np.sin(angle)
        turn = step @ turn
    return turn


def _grid(
    signs: tuple[int, int, int],
    *,
    turn: tuple[float, float, float] = (0, 0, 0),
    order: tuple[int, ...] = (0, 1, 2),
) -> Grid:
    direction = (_rotation(turn) @ np.diag(signs))[:, order]
    spacing = (1.2, 0.9, 2.1)
    centre = direction @ (np.array([5.0, 6.0, 4.0]) * spacing)
    return Grid.from_itk((11, 13, 9), np.array([20.0, -30.0, 55.0]) - centre, spacing, direction.ravel())


GRIDS = {
    "lps": _grid((1, 1, 1)),
    "ras": _grid((-1, -1, 1)),
    "las": _grid((1, -1, 1)),
    "oblique": _grid((-1, -1, 1), turn=(12, -25, 33)),
    "left_handed": _grid((-1, 1, 1), turn=(5, 10, -15)),
    "sagittal": _grid((1, -1, -1), order=(1, 2, 0)),
    "planar": Grid.from_itk((11, 13), (3.0, -8.0), (1.2, 0.7), _rotation((0, 0, 20))[:2, :2].ravel()),
    "planar_flipped": Grid.from_itk((11, 13), (3.0, -8.0), (1.2, 0.7), (0, -1, -1, 0)),
}


def moving_grid(fixed: Grid) -> Grid:
    """A grid of another size, spacing and orientation that overlaps `fixed` in part."""
    if fixed.ndim == 2:
        centre = fixed.index_to_world([[0, 6, 5]])[0, :2]
        return Grid.from_itk((12, 10), centre - (5.2, 4.1), (1.1, 1.0), (1, 0, 0, 1))
    direction = _rotation((-8, 4, 10)) @ np.diag((1, -1, 1))
    size, spacing = np.array([10, 12, 8]), np.array([1.3, 1.1, 1.9])
    centre = fixed.index_to_world([[4, 6, 5]])[0]
    return Grid.from_itk(size.tolist(), centre - direction @ (size / 2 * spacing), spacing, direction.ravel())


def noise(grid: Grid, generator: torch.Generator, *, channels: int = 1) -> Image:
    return Image(100 * torch.rand((channels, *grid.shape), generator=generator), grid)


def blobs(grid: Grid) -> Image:
    """Four labels in bricks."""
    z, y, x = torch.meshgrid(*[torch.arange(n) for n in grid.shape], indexing="ij")
    return Image((((y // 4) % 2) * 2 + (x // 3 + z // 3) % 2).to(torch.int32)[None] * 7, grid)


def affine_about(grid: Grid) -> Affine:
    """A rotation, shear and shift about the middle of `grid`; in 2-D within the plane."""
    matrix = np.eye(4)
    ndim = grid.ndim
    matrix[:ndim, :ndim] = _rotation((0, 0, 9) if ndim == 2 else (4, -6, 9))[:ndim, :ndim] + 0.04 * np.eye(ndim, k=1)
    centre = grid.index_to_world([(np.array(grid.shape) - 1) / 2])[0]
    matrix[:3, 3] = centre - matrix[:3, :3] @ centre
    matrix[:ndim, 3] += (0.7, -0.4, 0.9)[:ndim]
    return Affine(matrix, dimension=ndim)


def smooth_warp(grid: Grid, *, size: float = 0.8) -> Warp:
    """A smooth, invertible warp of up to `size` voxels that is not zero at the border."""
    z, y, x = torch.meshgrid(*[torch.arange(n, dtype=torch.float32) for n in grid.shape], indexing="ij")
    u = torch.stack([torch.sin(0.5 * y + 0.3 * x), torch.cos(0.4 * z + 0.2 * x), torch.sin(0.3 * z - 0.4 * y + 1)])
    if grid.ndim == 2:
        u[0] = 0
    return Warp(size * u, grid, "fixed", "fixed")


def registration(grid: Grid) -> Chain:
    """What a registration gives: a warp of the fixed space, then the affine to the moving space."""
    return Chain((smooth_warp(grid), affine_about(grid)))

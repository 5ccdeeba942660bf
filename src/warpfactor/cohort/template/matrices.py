"""Means and roots of affine matrices, by their logarithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from warpfactor.geometry.grid import Grid, Matrix

_NEAR = 0.05  # a matrix this close to the identity has a short series
_TERMS = 12
_ROOTS = 12
_STEPS = 40


def mean_matrix(matrices: Sequence[Matrix]) -> Matrix:
    """exp(mean of log A): the same whichever of the images the others are aligned to.

    Rotations by 180 degrees have no such logarithm; with one of them the plain mean is taken.
    """
    logs = [logarithm(matrix) for matrix in matrices]
    if any(each is None for each in logs):
        return np.asarray(np.mean(matrices, axis=0))
    return exponential(np.mean([each for each in logs if each is not None], axis=0))


def exponential(matrix: Matrix) -> Matrix:
    """exp of a matrix."""
    return np.asarray(torch.matrix_exp(torch.from_numpy(matrix)).numpy())


def square_root(matrix: Matrix) -> Matrix | None:
    """B with B B = matrix, by the iteration of Denman and Beavers; None if it does not converge."""
    root, inverse = matrix, np.eye(len(matrix))
    for _ in range(_STEPS):
        try:
            root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
        except np.linalg.LinAlgError:
            return None
    return root if np.allclose(root @ root, matrix, rtol=0, atol=1e-6 * max(1.0, np.abs(matrix).max())) else None


def logarithm(matrix: Matrix) -> Matrix | None:
    """log of a matrix, from the series near the identity after some square roots; None if there is no real one."""
    root: Matrix | None = np.asarray(matrix, dtype=np.float64)
    for halvings in range(_ROOTS):
        if root is None:
            return None
        apart = root - np.eye(len(root))
        if np.abs(apart[:3, :3]).max() < _NEAR:
            power, total = np.eye(len(root)), np.zeros_like(root)
            for term in range(1, _TERMS):
                power = power @ apart
                total += power * (-1) ** (term + 1) / term
            return total * 2.0**halvings
        root = square_root(root)
    return None


def mirror(grid: Grid) -> Matrix:
    """The reflection of left and right (world x) about the middle of a grid."""
    centre = grid.index_to_world([[(n - 1) / 2 for n in grid.shape]])[0]
    matrix = np.eye(4)
    matrix[0, 0] = -1.0
    matrix[0, 3] = 2 * centre[0]
    return matrix

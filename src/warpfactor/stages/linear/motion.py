"""How a linear transform may move: the generators of a group of motions, and what keeps a transform in that group.

A transform is changed by what comes before it, T <- T exp(sum of θ_k G_k). The generators turn, scale and shear
about the centre of the fixed image, and θ is scaled so that a unit moves the image's corner by about a voxel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from warpfactor.geometry.grid import Grid, Matrix

Vector = NDArray[np.float64]

MOTIONS = ("translation", "rigid", "similarity", "affine")  # each contains the ones before it


@dataclass(frozen=True)
class Motion:
    """A group of linear transforms, seen from the fixed grid.

    Attributes:
        dof: its name in MOTIONS.
        generators: (K, 4, 4), world LPS mm per unit of θ.
        jacobian: (12, K), the entries of the affine displacement E (3, 4) in fixed voxels, by θ.
        corners: (N, 4) homogeneous world points at the fixed image's corners.
        unit_mm: how far a unit of θ moves a corner, about.
    """

    dof: str
    generators: NDArray[np.float64]
    jacobian: NDArray[np.float64]
    corners: NDArray[np.float64]
    unit_mm: float

    @classmethod
    def on(cls, grid: Grid, dof: str, unit_mm: float) -> Motion:
        """The motions of a fixed grid; a grid with one slice moves in its plane only."""
        generators = _generators(grid, dof, unit_mm)
        inverse = np.linalg.inv(grid.matrix)
        entries = np.stack([(inverse @ g @ grid.matrix)[:3].ravel() for g in generators], axis=1)
        return cls(dof, generators, entries, _corners(grid), unit_mm)

    def step(self, theta: Vector) -> Matrix:
        """4x4 exp(sum of θ_k G_k)."""
        generator = torch.from_numpy(np.tensordot(theta, self.generators, axes=1))
        result: Matrix = torch.linalg.matrix_exp(generator).numpy()
        return result

    def reach(self, step: Matrix) -> float:
        """How far the step moves the image's corners at most, in units."""
        moved = self.corners @ (step - np.eye(4)).T
        return float(np.linalg.norm(moved[:, :3], axis=1).max()) / self.unit_mm


def restrict(matrix: Matrix, dof: str, grid: Grid) -> Matrix:
    """The nearest transform of the group `dof` that takes the middle of the fixed grid to the same place.

    Of a slice only its plane is scaled, never its normal; in 2-D z is left alone to the last digit, as files need it.
    """
    centre, frame = centre_of(grid), plane_axes(grid)
    free = 2 if grid.shape[0] == 1 else 3
    linear = matrix[:3, :3]
    if dof == "translation":
        linear = np.eye(3)
    elif dof != "affine":
        u, stretches, vt = np.linalg.svd(linear @ frame[:, :free], full_matrices=False)
        rotation = _right_handed(u, vt)
        scale = np.ones(3)
        if dof == "similarity":
            scale[:free] = np.exp(np.log(stretches).mean())
        linear = rotation * scale @ frame.T
    result = about(centre, linear, matrix[:3, :3] @ centre + matrix[:3, 3])
    if grid.ndim == 2:
        result[2], result[:2, 2] = (0, 0, 1, 0), 0
    return result


def _right_handed(u: Matrix, vt: Matrix) -> Matrix:
    """(3, 3) rotation nearest to u vt; of a slice the first two columns are given and the third is their normal."""
    if vt.shape[0] == 2:
        plane = u @ vt
        return np.column_stack([plane, np.cross(plane[:, 0], plane[:, 1])])
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(u) * np.linalg.det(vt))])
    return np.asarray(u * signs @ vt)


def about(centre: Vector, linear: Matrix, target: Vector) -> Matrix:
    """4x4 transform with the given linear part that takes `centre` to `target`."""
    result = np.eye(4)
    result[:3, :3] = linear
    result[:3, 3] = target - linear @ centre
    return result


def strain(matrix: Matrix, reference: Matrix) -> Matrix:
    """(3, 3) log(CᵀC) of C = matrix reference⁻¹: twice the logarithm of its stretches; zero for a rotation."""
    relative = matrix[:3, :3] @ np.linalg.inv(reference[:3, :3])
    values, vectors = np.linalg.eigh(relative.T @ relative)
    return np.asarray((vectors * np.log(np.maximum(values, 1e-12))) @ vectors.T)


def plane_axes(grid: Grid) -> Matrix:
    """(3, 3) orthonormal columns: the world's axes, or two in the plane of a slice and its normal."""
    if grid.shape[0] > 1:
        return np.eye(3)
    q, _ = np.linalg.qr(grid.matrix[:3, [2, 1]])
    return np.column_stack([q, np.cross(q[:, 0], q[:, 1])])


def centre_of(grid: Grid) -> Vector:
    """(3,) world point in the middle of a grid."""
    middle: Vector = grid.index_to_world((np.asarray(grid.shape) - 1) / 2)[0]
    return middle


def _generators(grid: Grid, dof: str, unit_mm: float) -> NDArray[np.float64]:
    """(K, 4, 4): shifts, then turns, then the common scale or all other strains."""
    axes, centre = plane_axes(grid), centre_of(grid)
    extent = _corners(grid)[:, :3] - centre
    turn = unit_mm / float(np.linalg.norm(extent, axis=1).max())
    flat = grid.shape[0] == 1
    result = [_embed(np.zeros((3, 3)), unit_mm * axes[:, a], centre) for a in range(2 if flat else 3)]
    planes = [(0, 1)] if flat else [(1, 2), (2, 0), (0, 1)]
    linear: list[Matrix] = []
    if dof != "translation":
        linear += [_unit(b, a) - _unit(a, b) for a, b in planes]
    if dof == "similarity":
        linear += [np.diag([1.0, 1.0, 0.0 if flat else 1.0])]
    if dof == "affine":
        linear += [_unit(a, b) + _unit(b, a) for a, b in planes]
        linear += [_unit(a, a) for a in range(2 if flat else 3)]
    result += [_embed(turn * axes @ part @ axes.T, np.zeros(3), centre) for part in linear]
    return np.stack(result)


def _unit(row: int, column: int) -> Matrix:
    result = np.zeros((3, 3))
    result[row, column] = 1.0
    return result


def _embed(linear: Matrix, shift: Vector, centre: Vector) -> Matrix:
    """4x4 generator of x -> linear (x - centre) + shift."""
    result = np.zeros((4, 4))
    result[:3, :3] = linear
    result[:3, 3] = shift - linear @ centre
    return result


def _corners(grid: Grid) -> NDArray[np.float64]:
    index = np.stack(np.meshgrid(*[(0.0, n - 1.0) for n in grid.shape], indexing="ij"), axis=-1).reshape(-1, 3)
    return np.column_stack([grid.index_to_world(index), np.ones(len(index))])

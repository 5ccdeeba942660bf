"""Grid: frames, ITK and nibabel geometry, pyramid levels."""

import numpy as np
import pytest
import torch

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid

OBLIQUE = Grid.from_itk(
    (11, 13, 9),
    (4.0, -7.0, 30.0),
    (0.8, 1.5, 2.5),
    np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 1.5 + np.eye(3))[0].ravel(),
)


def test_itk_geometry_survives_the_round_trip() -> None:
    again = Grid.from_itk(*OBLIQUE.to_itk())
    np.testing.assert_allclose(again.matrix, OBLIQUE.matrix, rtol=0, atol=1e-13)
    assert again.shape == (9, 13, 11)
    np.testing.assert_allclose(OBLIQUE.spacing_mm, (2.5, 1.5, 0.8))


def test_index_and_world_are_inverse(rng: np.random.Generator) -> None:
    index = rng.uniform(-3, 12, (20, 3))
    np.testing.assert_allclose(OBLIQUE.world_to_index(OBLIQUE.index_to_world(index)), index, atol=1e-12)


def test_index_to_world_agrees_with_sitk() -> None:
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.Image(OBLIQUE.to_itk().size, sitk.sitkFloat32)
    image.SetOrigin(OBLIQUE.to_itk().origin)
    image.SetSpacing(OBLIQUE.to_itk().spacing)
    image.SetDirection(OBLIQUE.to_itk().direction)
    expected = image.TransformContinuousIndexToPhysicalPoint((1.0, 2.0, 3.0))
    np.testing.assert_allclose(OBLIQUE.index_to_world([[3, 2, 1]])[0], expected)


def test_two_dimensions_are_one_slice() -> None:
    grid = Grid.from_itk((5, 4), (1, 2), (0.5, 2), (0, 1, 1, 0))
    assert grid.shape == (1, 4, 5)
    np.testing.assert_allclose(grid.index_to_world([[0, 1, 3]]), [[1 + 2, 2 + 1.5, 0]])
    assert Grid.from_itk(*grid.to_itk()) == grid


def test_ras_affine_becomes_lps() -> None:
    grid = Grid.from_ras((4, 5, 6), np.diag([2.0, 3, 4, 1]))
    np.testing.assert_allclose(grid.index_to_world([[1, 1, 1]]), [[-2, -3, 4]])


def test_voxel_map_goes_through_world_and_affine(rng: np.random.Generator) -> None:
    moving = Grid.from_spacing((7, 8, 9), (1, 2, 3))
    affine = np.eye(4)
    affine[:3] += rng.normal(0, 0.1, (3, 4))
    index = rng.uniform(0, 8, (5, 3))
    matrix = OBLIQUE.voxel_map(moving, affine).numpy()
    world = np.c_[OBLIQUE.index_to_world(index), np.ones(5)] @ affine.T
    np.testing.assert_allclose(index @ matrix[:, :3].T + matrix[:, 3], moving.world_to_index(world[:, :3]))


def test_vectors_change_frames_and_back(generator: torch.Generator) -> None:
    u = torch.rand((3, *OBLIQUE.shape), generator=generator, dtype=torch.float64)
    moved = OBLIQUE.index_to_world([np.array([1, 2, 3]) + u[:, 1, 2, 3].numpy()]) - OBLIQUE.index_to_world([[1, 2, 3]])
    np.testing.assert_allclose(OBLIQUE.voxels_to_mm(u)[:, 1, 2, 3].numpy(), moved[0])
    torch.testing.assert_close(OBLIQUE.mm_to_voxels(OBLIQUE.voxels_to_mm(u)), u)


def test_level_voxel_is_the_mean_of_what_it_covers() -> None:
    level = OBLIQUE.scaled(2)
    assert level.shape == (5, 7, 6)
    covered = np.stack(np.meshgrid([2, 3], [4, 5], [0, 1], indexing="ij"), -1).reshape(-1, 3)
    np.testing.assert_allclose(level.index_to_world([[1, 2, 0]])[0], OBLIQUE.index_to_world(covered).mean(0))


def test_level_by_shape_spans_the_same_field_of_view() -> None:
    level = OBLIQUE.scaled(shape=(4, 5, 6))
    for grid in (level, OBLIQUE):
        ends = np.array([[-0.5] * 3, np.array(grid.shape) - 0.5])
        np.testing.assert_allclose(OBLIQUE.world_to_index(grid.index_to_world(ends)), [[-0.5] * 3, [8.5, 12.5, 10.5]])


def test_one_factor_leaves_length_one_axes_alone() -> None:
    assert Grid.from_spacing((8, 9)).scaled(4).shape == (1, 2, 3)
    assert Grid.from_spacing((8, 9)).scaled(4).ndim == 2


def test_same_space_tolerates_header_noise_only() -> None:
    matrix = OBLIQUE.matrix.copy()
    assert OBLIQUE.same_space(Grid(OBLIQUE.shape, matrix * (1 + 1e-5 * (np.arange(16).reshape(4, 4) == 3))))
    matrix[0, 3] += 0.01
    assert not OBLIQUE.same_space(Grid(OBLIQUE.shape, matrix))
    assert not OBLIQUE.same_space(Grid((9, 13, 12), OBLIQUE.matrix))


def test_grids_compare_and_hash_by_value() -> None:
    again = Grid(OBLIQUE.shape, OBLIQUE.matrix.copy())
    assert again == OBLIQUE and hash(again) == hash(OBLIQUE)
    assert again != Grid((1, 13, 11), OBLIQUE.matrix)


@pytest.mark.parametrize(
    ("shape", "matrix", "words"),
    [
        ((2, 2, 2), np.diag([0.0, 1, 1, 1]), "positive"),
        ((2, 2, 2), np.diag([np.nan, 1, 1, 1]), "finite"),
        ((2, 2, 2), np.array([[1.0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]), "one plane"),
        ((0, 2, 2), np.eye(4), "at least one voxel"),
        ((2, 2, 2), np.diag([1.0, 1, 1, 2]), "last row"),
    ],
)
def test_unusable_geometry_is_refused(shape: tuple[int, int, int], matrix: np.ndarray, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Grid(shape, matrix)


def test_negative_and_zero_itk_spacing_are_refused() -> None:
    for spacing in ((1, 0, 1), (1, -1, 1)):
        with pytest.raises(InputError, match="positive"):
            Grid.from_itk((2, 2, 2), (0, 0, 0), spacing, np.eye(3).ravel())

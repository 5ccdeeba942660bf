"""Transforms against SimpleITK, over every orientation; composition, inversion, Jacobian."""

from typing import Any

import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, affine_about, blobs, moving_grid, noise, registration, smooth_warp
from warpfactor.errors import InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp

ROUNDING = {"rtol": 0, "atol": 2e-3}  # float32 displacements times noise of 100 per voxel


def as_sitk(transform: Transform) -> Any:
    """The same transform built in SimpleITK, which applies the last member first."""
    composite = SimpleITK.CompositeTransform(transform.ndim)
    for part in reversed(transform.parts):
        if isinstance(part, Affine):
            composite.AddTransform(itk.affine_to_sitk(part.matrix, transform.ndim))
        else:
            composite.AddTransform(itk.warp_to_sitk(part.displacement, part.grid))
    return composite


def sitk_resample(
    transform: Transform, image: Image, grid: Grid, interpolator: int = SimpleITK.sitkLinear
) -> torch.Tensor:
    size, origin, spacing, direction = grid.to_itk()
    result = SimpleITK.Resample(
        image.to_sitk(), size, as_sitk(transform), interpolator, origin, spacing, direction, -5.0
    )
    return itk.image_from_sitk(result)[0]


@pytest.mark.parametrize("name", GRIDS)
def test_resample_equals_sitk(name: str, generator: torch.Generator) -> None:
    fixed = GRIDS[name]
    moving = noise(moving_grid(fixed), generator)
    for transform in (affine_about(fixed), smooth_warp(fixed), registration(fixed)):
        ours = transform.resample(moving, fixed, outside=-5.0)
        assert ours.grid == fixed
        assert ((ours.data == -5).float().mean() < 0.7).all()
        torch.testing.assert_close(ours.data, sitk_resample(transform, moving, fixed), **ROUNDING)


@pytest.mark.parametrize("name", GRIDS)
def test_general_chains_equal_sitk(name: str, generator: torch.Generator) -> None:
    """Inverse order and warps on other grids than the result's, partly beyond their border."""
    fixed = GRIDS[name]
    other = moving_grid(fixed)
    chain = Chain((affine_about(fixed).inverse(), smooth_warp(fixed), affine_about(fixed), smooth_warp(other)))
    image = noise(fixed, generator)
    ours = chain.resample(image, other, outside=-5.0).data
    torch.testing.assert_close(ours, sitk_resample(chain, image, other), **ROUNDING)


@pytest.mark.parametrize("name", ["oblique", "planar"])
@pytest.mark.parametrize(("mode", "interpolator"), [("nearest", 1), ("bspline", 3)])
def test_other_interpolations_equal_sitk(name: str, mode: str, interpolator: int, generator: torch.Generator) -> None:
    kinds = {1: SimpleITK.sitkNearestNeighbor, 3: SimpleITK.sitkBSpline}
    fixed = GRIDS[name]
    moving = noise(moving_grid(fixed), generator)
    transform = registration(fixed)
    ours = transform.resample(moving, fixed, mode=mode, outside=-5.0).data
    torch.testing.assert_close(ours, sitk_resample(transform, moving, fixed, kinds[interpolator]), **ROUNDING)


@pytest.mark.parametrize("name", GRIDS)
def test_points_equal_sitk(name: str, rng: np.random.Generator) -> None:
    """Inside, in the half-voxel rim and far outside the field."""
    fixed = GRIDS[name]
    points = fixed.index_to_world(rng.uniform(-2, np.array(fixed.shape) + 1, (60, 3)) * (1, 1, 1))
    if fixed.ndim == 2:
        points[:, 2] = 0
    for transform in (affine_about(fixed), smooth_warp(fixed), registration(fixed)):
        theirs = as_sitk(transform)
        expected = [theirs.TransformPoint(point[: fixed.ndim].tolist()) for point in points]
        np.testing.assert_allclose(transform.map_points(points)[:, : fixed.ndim], expected, atol=1e-9)


@pytest.mark.parametrize("name", GRIDS)
def test_a_moved_point_lands_on_its_intensity(name: str) -> None:
    """The warped image of a linear ramp holds, at every fixed voxel, the ramp at the mapped point."""
    fixed = GRIDS[name]
    moving = moving_grid(fixed)
    slope = np.array([1.0, -2.0, 0.5]) if fixed.ndim == 3 else np.array([1.0, -2.0, 0.0])
    index = np.stack(np.meshgrid(*[np.arange(n) for n in moving.shape], indexing="ij"), -1).reshape(-1, 3)
    ramp = Image.from_array((moving.index_to_world(index) @ slope).reshape(moving.shape), grid=moving)
    transform = registration(fixed)
    warped = transform.resample(ramp, fixed, outside=float("nan")).data[0]
    voxels = np.stack(np.meshgrid(*[np.arange(n) for n in fixed.shape], indexing="ij"), -1).reshape(-1, 3)
    mapped = transform.map_points(fixed.index_to_world(voxels))
    place = moving.world_to_index(mapped)
    within = np.all((place >= -1e-9) & (place <= np.array(moving.shape) - 1 + 1e-9), axis=1)
    assert within.sum() > 30
    np.testing.assert_allclose(warped.numpy().ravel()[within], (mapped @ slope)[within], atol=1e-4)


def test_chain_of_warp_and_affine_on_one_grid_uses_the_field_itself() -> None:
    chain = registration(GRIDS["oblique"])
    place = chain.on_grid(GRIDS["oblique"])
    assert place.displacement is chain.parts[0].displacement  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["oblique", "planar"])
def test_labels_never_mix(name: str) -> None:
    fixed = GRIDS[name]
    labels = blobs(moving_grid(fixed))
    ours = registration(fixed).resample(labels, fixed, mode="label", outside=-1)
    assert ours.data.dtype == torch.int32
    assert set(ours.data.unique().tolist()) <= {-1, *labels.data.unique().tolist()}
    shares = []
    for label in labels.data.unique():
        one = Image((labels.data == label).float(), labels.grid)
        shares.append(registration(fixed).resample(one, fixed).data)
    best = torch.stack(shares).max(dim=0)
    clear = best.values > 0.501
    assert torch.equal(ours.data[clear], labels.data.unique()[best.indices][clear])


def test_huge_label_numbers_stay_exact() -> None:
    fixed = GRIDS["lps"]
    data = torch.full((1, *fixed.shape), 2**30 + 1, dtype=torch.int32)
    for mode in ("nearest", "label"):
        ours = Affine().resample(Image(data, fixed), fixed, mode=mode)
        assert torch.equal(ours.data, data)


def test_channels_are_resampled_each(generator: torch.Generator) -> None:
    fixed = GRIDS["las"]
    image = noise(fixed, generator, channels=2)
    both = registration(fixed).resample(image, fixed).data
    one = registration(fixed).resample(Image(image.data[1:], fixed), fixed).data
    assert torch.equal(both[1:], one)


def test_unknown_interpolation_is_refused(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match="linear, nearest, label, bspline"):
        Affine().resample(noise(GRIDS["lps"], generator), GRIDS["lps"], mode="cubic")


def test_matmul_reads_from_right_to_left(rng: np.random.Generator) -> None:
    grid = GRIDS["oblique"]
    warp, affine = smooth_warp(grid), affine_about(grid)
    points = grid.index_to_world(rng.uniform(2, 7, (10, 3)))
    np.testing.assert_allclose((affine @ warp).map_points(points), affine.map_points(warp.map_points(points)))
    assert isinstance(affine @ affine.inverse(), Affine)
    assert len((affine @ affine @ warp).parts) == 2


def test_directions_follow_composition_and_inversion() -> None:
    to_atlas = Affine(source="subject", target="atlas")
    to_other = Affine(source="atlas", target="other")
    joined = to_other @ to_atlas
    assert (joined.source, joined.target) == ("subject", "other")
    assert (joined.inverse().source, joined.inverse().target) == ("other", "subject")
    chain = registration(GRIDS["lps"])
    assert (chain.source, chain.target) == ("fixed", "moving")
    assert (chain.inverse().source, chain.inverse().target) == ("moving", "fixed")


@pytest.mark.parametrize("name", GRIDS)
def test_inverse_brings_points_back(name: str, rng: np.random.Generator) -> None:
    grid = GRIDS[name]
    chain = registration(grid)
    affine = chain.parts[1]
    middle = rng.integers(np.array(grid.shape) // 3, np.array(grid.shape) * 2 // 3 + 1, (20, 3))
    points = affine.map_points(grid.index_to_world(middle * (grid.ndim == 3, 1, 1)))
    # At the voxels of the inverse field, so that its own interpolation plays no part.
    np.testing.assert_allclose(chain.map_points(chain.inverse().map_points(points)), points, atol=3e-3)


def test_inverse_residual_is_in_millimetres() -> None:
    fine = smooth_warp(Grid.from_spacing((9, 13, 11), (2.0, 1.0, 0.5)))
    inverse, residual = fine.inverse_with_residual(iterations=1)
    ramp = torch.stack(torch.meshgrid(*[torch.arange(n) for n in fine.grid.shape], indexing="ij"))
    v = inverse.displacement[:, 4, 6, 5]
    start = (ramp[:, 4, 6, 5] + v).double()
    mapped = fine.map_points(fine.grid.index_to_world(start[None]))
    off = np.linalg.norm(mapped - fine.grid.index_to_world([[4, 6, 5]]))
    assert residual.shape == fine.grid.shape
    assert float(residual[4, 6, 5]) == pytest.approx(off, abs=1e-5)
    assert (inverse.source, inverse.target) == (fine.target, fine.source)


def test_jacobian_of_a_stretch_is_its_volume_change() -> None:
    grid = GRIDS["oblique"]
    ramp = torch.stack(torch.meshgrid(*[torch.arange(n, dtype=torch.float32) for n in grid.shape], indexing="ij"))
    scale = torch.tensor([0.1, -0.2, 0.3]).reshape(3, 1, 1, 1)
    jacobian = Warp(scale * ramp, grid).jacobian()
    torch.testing.assert_close(jacobian.data, torch.full((1, *grid.shape), 1.1 * 0.8 * 1.3))


def test_to_warp_holds_the_whole_chain(rng: np.random.Generator) -> None:
    grid = GRIDS["left_handed"]
    chain = registration(grid)
    index = rng.integers(0, grid.shape, (20, 3))
    points = grid.index_to_world(index)
    np.testing.assert_allclose(chain.to_warp(grid).map_points(points), chain.map_points(points), atol=1e-5)


def test_one_slice_volume_is_resampled_in_its_plane(generator: torch.Generator) -> None:
    oblique = GRIDS["oblique"]
    slice_grid = Grid((1, 13, 11), oblique.matrix)
    image = noise(slice_grid, generator)
    torch.testing.assert_close(Affine().resample(image, slice_grid).data, image.data)


def test_transforms_and_images_print_in_a_line() -> None:
    grid = Grid.from_spacing((9, 12), (2, 1.5))
    matrix = np.eye(4)
    matrix[0, 3] = 1 / 3
    assert repr(Affine(matrix)) == (
        "Affine(fixed -> moving, [[1.0, 0.0, 0.0, 0.3333], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], "
        "[0.0, 0.0, 0.0, 1.0]])"
    )
    place = "9 x 12 voxels of 2 x 1.5 mm (y, x)"
    assert repr(Warp(torch.zeros((3, 1, 9, 12)), grid, "a", "b")) == f"Warp(a -> b, {place})"
    assert repr(Image(torch.zeros((2, 1, 9, 12)), grid, "t1.png")) == f"Image('t1.png', 2 x float32, {place})"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Affine(np.zeros((4, 4))), "last row"),
        (lambda: Affine(np.diag([1.0, 1, 0, 1])), "singular"),
        (lambda: Affine(np.eye(3)), "4x4"),
        (lambda: Warp(torch.zeros((3, 2, 2, 2)), GRIDS["lps"]), "cannot have shape"),
        (lambda: Warp(torch.zeros((3, 9, 13, 11), dtype=torch.int32), GRIDS["lps"]), "floating"),
        (lambda: Warp(torch.full((3, 9, 13, 11), torch.nan), GRIDS["lps"]), "finite"),
        (lambda: Chain(()), "at least one"),
    ],
)
def test_impossible_transforms_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_a_transform_of_another_dimension_is_refused(generator: torch.Generator) -> None:
    volume, plane = GRIDS["oblique"], next(grid for grid in GRIDS.values() if grid.ndim == 2)
    for own, other in ((volume, plane), (plane, volume)):
        for transform in (affine_about(own), smooth_warp(own), registration(own)):
            with pytest.raises(InputError, match=rf"is {own.ndim}-D, the image {other.ndim}-D"):
                transform.resample(noise(other, generator), other)
    assert Affine(np.diag((1.0, 1.1, 1.0, 1.0))).resample(noise(plane, generator), plane).grid == plane

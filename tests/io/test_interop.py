"""Our files applied by ANTs and SimpleITK, and theirs by us, over every orientation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, affine_about, moving_grid, noise, registration
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform, Warp
from warpfactor.io import from_any, read_image, read_transform, write_ants, write_image, write_transform

SPATIAL = [name for name in GRIDS if "planar" not in name]
# Files hold the warp in float32 mm and image geometry in float32, noise of 100 per voxel multiplies both.
ROUNDING = {"rtol": 0, "atol": 1e-2}


@pytest.fixture
def ants() -> Any:
    return pytest.importorskip("ants")


def _inner(fixed: Grid, transform: Transform, moving: Grid) -> torch.Tensor:
    """Voxels whose point is off the border of the moving image, where float32 headers decide in or out."""
    index = np.stack(np.meshgrid(*[np.arange(n) for n in fixed.shape], indexing="ij"), -1).reshape(-1, 3)
    place = moving.world_to_index(transform.map_points(fixed.index_to_world(index)))
    edge = np.abs(np.abs(place - (np.array(moving.shape) - 1) / 2) - np.array(moving.shape) / 2)
    edge = edge[:, 1:] if fixed.ndim == 2 else edge
    return torch.from_numpy(np.all(edge > 1e-3, axis=1)).reshape(1, *fixed.shape)


def _setup(name: str, generator: torch.Generator, folder: Path) -> tuple[Transform, Image, list[Path], torch.Tensor]:
    """A registration and its files, and the moving image warped by us."""
    fixed = GRIDS[name]
    moving = noise(moving_grid(fixed), generator)
    transform = registration(fixed)
    warp = transform.parts[0]
    assert isinstance(warp, Warp)
    paths = write_ants(transform, f"{folder}/", inverse_warp=warp.inverse())
    write_image(moving, folder / "moving.nii.gz")
    write_image(noise(fixed, generator), folder / "fixed.nii.gz")
    warped = transform.resample(moving, fixed).data
    return transform, moving, paths, warped


@pytest.mark.parametrize("name", GRIDS)
def test_ants_applies_our_files(name: str, generator: torch.Generator, tmp_path: Path, ants: Any) -> None:
    transform, moving, (affine, warp, _), warped = _setup(name, generator, tmp_path)
    theirs = ants.apply_transforms(
        ants.image_read(str(tmp_path / "fixed.nii.gz")),
        ants.image_read(str(tmp_path / "moving.nii.gz")),
        [str(warp), str(affine)],
        interpolator="linear",
    )
    inner = _inner(GRIDS[name], transform, moving.grid)
    assert inner.float().mean() > 0.9
    torch.testing.assert_close(warped[inner], from_any(theirs).data[inner], **ROUNDING)


@pytest.mark.parametrize("name", GRIDS)
def test_sitk_applies_our_files(name: str, generator: torch.Generator, tmp_path: Path) -> None:
    transform, moving, (affine, warp, _), warped = _setup(name, generator, tmp_path)
    ndim = GRIDS[name].ndim
    composite = SimpleITK.CompositeTransform(ndim)
    composite.AddTransform(SimpleITK.ReadTransform(str(affine)))
    field = SimpleITK.ReadImage(str(warp), SimpleITK.sitkVectorFloat64)
    composite.AddTransform(SimpleITK.DisplacementFieldTransform(field))
    write_transform(transform, tmp_path / "chain.h5")
    inner = _inner(GRIDS[name], transform, moving.grid)
    reference = SimpleITK.ReadImage(str(tmp_path / "fixed.nii.gz"))
    for theirs in (composite, SimpleITK.ReadTransform(str(tmp_path / "chain.h5"))):
        result = SimpleITK.Resample(moving.to_sitk(), reference, theirs, SimpleITK.sitkLinear, 0.0)
        torch.testing.assert_close(warped[inner], itk.image_from_sitk(result)[0][inner], **ROUNDING)


@pytest.mark.parametrize("name", SPATIAL)
def test_ants_applies_our_inverse_files(name: str, generator: torch.Generator, tmp_path: Path, ants: Any) -> None:
    _, moving, (affine, _, inverse), _ = _setup(name, generator, tmp_path)
    theirs = ants.apply_transforms(
        ants.image_read(str(tmp_path / "moving.nii.gz")),
        ants.image_read(str(tmp_path / "fixed.nii.gz")),
        [str(affine), str(inverse)],
        whichtoinvert=[True, False],
        interpolator="linear",
    )
    back = read_transform([f"[{affine},1]", inverse], source="moving", target="fixed")
    fixed = read_image(tmp_path / "fixed.nii.gz")
    ours = back.resample(fixed, moving.grid).data
    # Where a point is at the border of the inverse field, or of the image, float32 headers decide.
    close = (ours - from_any(theirs).data).abs() < ROUNDING["atol"]
    assert close.float().mean() > 0.98


@pytest.mark.parametrize("name", SPATIAL)
def test_points_agree_with_ants(name: str, generator: torch.Generator, tmp_path: Path, ants: Any) -> None:
    pandas = pytest.importorskip("pandas")
    transform, _, (affine, warp, _), _ = _setup(name, generator, tmp_path)
    fixed = GRIDS[name]
    points = fixed.index_to_world(np.random.default_rng(3).uniform(0, np.array(fixed.shape) - 1, (20, 3)))
    table = pandas.DataFrame(points, columns=["x", "y", "z"])
    theirs = ants.apply_transforms_to_points(3, table, [str(warp), str(affine)], whichtoinvert=[False, False])
    np.testing.assert_allclose(transform.map_points(points), theirs[["x", "y", "z"]].to_numpy(), atol=1e-3)


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("name", ["oblique", "left_handed", "planar"])
def test_we_apply_what_ants_wrote(name: str, composite: bool, tmp_path: Path, ants: Any) -> None:
    """A short ANTs registration of a blob with a shifted blob, both directions, applied by both."""
    grid = GRIDS[name].scaled(0.5)
    fixed, moving = tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz"
    write_image(_blob(grid, 0.0), fixed)
    write_image(_blob(grid, 1.5), moving)
    result = ants.registration(
        ants.image_read(str(fixed)),
        ants.image_read(str(moving)),
        "SyN",
        reg_iterations=(5,),
        aff_iterations=(5,),
        aff_shrink_factors=(1,),
        aff_smoothing_sigmas=(0,),
        outprefix=f"{tmp_path}/ants_",
        write_composite_transform=composite,
    )
    forward, backward = result["fwdtransforms"], result["invtransforms"]
    inverted = backward if composite else [f"[{backward[0]},1]", backward[1]]
    invert = None if composite else [True, False]
    for ours, theirs, flags, onto, image in (
        (forward, forward, None, fixed, moving),
        (inverted, backward, invert, moving, fixed),
    ):
        expected = ants.apply_transforms(
            ants.image_read(str(onto)),
            ants.image_read(str(image)),
            theirs,
            whichtoinvert=flags,
            interpolator="linear",
        )
        transform = read_transform(ours)
        assert len(transform.parts) == 2
        warped = transform.resample(read_image(image), read_image(onto).grid).data
        assert (warped - read_image(image).data).abs().max() > 5  # the transform does something
        torch.testing.assert_close(warped, from_any(expected).data, rtol=0, atol=1e-3)


def test_points_of_an_oblique_anisotropic_h5_agree_with_sitk(tmp_path: Path, rng: np.random.Generator) -> None:
    grid = GRIDS["oblique"]
    write_transform(registration(grid), tmp_path / "chain.h5")
    theirs = SimpleITK.ReadTransform(str(tmp_path / "chain.h5"))
    points = grid.index_to_world(rng.uniform(0, np.array(grid.shape) - 1, (20, 3)))
    expected = [theirs.TransformPoint(point) for point in points.tolist()]
    np.testing.assert_allclose(registration(grid).map_points(points), expected, atol=1e-6)


def test_affine_file_means_the_same_to_ants(tmp_path: Path, ants: Any) -> None:
    affine = affine_about(GRIDS["oblique"])
    write_transform(affine, tmp_path / "0GenericAffine.mat")
    theirs = ants.read_transform(str(tmp_path / "0GenericAffine.mat"))
    point = [3.0, -20.0, 40.0]
    np.testing.assert_allclose(theirs.apply_to_point(point), affine.map_points([point])[0], atol=1e-9)
    ants.write_transform(theirs, str(tmp_path / "again.mat"))
    np.testing.assert_allclose(read_transform(tmp_path / "again.mat").parts[0].matrix, affine.matrix, atol=1e-12)  # type: ignore[union-attr]


def _blob(grid: Grid, shift: float) -> Image:
    index = np.stack(np.meshgrid(*[np.arange(n) for n in grid.shape], indexing="ij"), -1)
    middle = (np.array(grid.shape) - 1) / 2
    off = (index - middle - shift * (np.array(grid.shape) > 1)) / np.maximum(middle, 1)
    return Image.from_array(100 * np.exp(-3 * (off**2).sum(-1)).astype(np.float32), grid=grid)

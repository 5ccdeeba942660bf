"""Image: from arrays and from the image objects of other packages."""

import re

import nibabel
import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, noise
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io import from_any


@pytest.mark.parametrize("name", GRIDS)
def test_sitk_round_trip_is_exact(name: str, generator: torch.Generator) -> None:
    image = noise(GRIDS[name], generator)
    again = from_any(image.to_sitk())
    assert torch.equal(again.data, image.data)
    np.testing.assert_allclose(again.grid.matrix, image.grid.matrix, atol=1e-13)
    assert again.grid.ndim == image.grid.ndim


def test_channels_become_a_vector_image(generator: torch.Generator) -> None:
    image = noise(GRIDS["oblique"], generator, channels=2)
    assert image.to_sitk().GetNumberOfComponentsPerPixel() == 2
    assert torch.equal(from_any(image.to_sitk()).data, image.data)


@pytest.mark.parametrize("name", [name for name in GRIDS if "planar" not in name])
def test_nibabel_image_lands_where_sitk_puts_it(name: str, generator: torch.Generator, tmp_path: object) -> None:
    image = noise(GRIDS[name], generator)
    path = f"{tmp_path}/image.nii"
    SimpleITK.WriteImage(image.to_sitk(), path)
    again = from_any(nibabel.load(path))
    assert torch.equal(again.data, image.data)
    assert again.grid.same_space(image.grid)


@pytest.mark.parametrize("name", ["oblique", "left_handed", "planar_flipped"])
def test_ants_image_lands_where_sitk_puts_it(name: str, generator: torch.Generator) -> None:
    ants = pytest.importorskip("ants")
    image = noise(GRIDS[name], generator)
    size, origin, spacing, direction = image.grid.to_itk()
    array = image.to_sitk()
    values = SimpleITK.GetArrayFromImage(array).T
    assert values.shape == size
    theirs = ants.from_numpy(values, origin, spacing, np.reshape(direction, (len(size), len(size))))
    again = from_any(theirs)
    assert torch.equal(again.data, image.data)
    assert again.grid.same_space(image.grid, 1e-9)


def test_arrays_take_spacing_in_array_order() -> None:
    image = from_any(np.zeros((3, 4, 5), np.int16), spacing_mm=(3, 2, 1))
    assert image.grid.spacing_mm == (3, 2, 1)
    assert image.data.dtype == torch.float32
    assert from_any(np.zeros((4, 5))).grid.ndim == 2


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 3, 4, 5), (2, 3, 4, 5)])
def test_an_array_has_the_axes_of_its_grid(shape: tuple[int, ...], generator: torch.Generator) -> None:
    array = torch.rand(shape, generator=generator)
    image = Image.from_array(array, grid=Grid.from_spacing((3, 4, 5)))
    assert torch.equal(image.data, array if array.ndim == 4 else array[None])


@pytest.mark.parametrize("shape", [(4, 5), (1, 4, 5), (2, 4, 5), (2, 1, 4, 5)])
@pytest.mark.parametrize("grid", [Grid.from_spacing((4, 5)), Grid.from_spacing((1, 4, 5))])
def test_an_array_of_one_slice_needs_no_z_axis(shape: tuple[int, ...], grid: Grid, generator: torch.Generator) -> None:
    array = torch.rand(shape, generator=generator)
    image = Image.from_array(array, grid=grid)
    assert torch.equal(image.data, array.reshape(-1, 1, 4, 5))


@pytest.mark.parametrize(
    ("shape", "grid"), [((5, 4, 3), (3, 4, 5)), ((5, 4, 3, 2), (3, 4, 5)), ((5, 4, 1), (1, 4, 5)), ((5, 4), (4, 5))]
)
def test_reversed_axes_are_refused_with_a_remedy(shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
    array, space = np.zeros(shape), Grid.from_spacing(grid)
    both = f"{re.escape(str(shape))} does not fit a grid of {re.escape(str(space.shape))}"
    with pytest.raises(InputError, match=rf"mask: an array of shape {both}; its axes look reversed.* pass array.T\.$"):
        Image.from_array(array, grid=space, name="mask")
    order = tuple(reversed(range(len(shape))))
    with pytest.raises(InputError, match=rf"look reversed.* pass array.permute{re.escape(str(order))}\.$"):
        Image.from_array(torch.from_numpy(array), grid=space)
    assert Image.from_array(array.T, grid=space).data.shape[1:] == space.shape


@pytest.mark.parametrize("shape", [(4, 3, 5), (60,), (3, 20), (1, 1, 3, 4, 5), (3, 4, 5, 2), (3, 4, 6)])
def test_other_shapes_are_refused_though_their_voxels_are_as_many(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"does not fit a grid of \(3, 4, 5\); its axes must be those of the grid"):
        Image.from_array(np.zeros(shape), grid=Grid.from_spacing((3, 4, 5)))


def test_unsigned_and_big_endian_arrays_are_read() -> None:
    for dtype in (np.uint16, np.uint32, ">f4", ">i2", bool):
        assert from_any(np.ones((2, 3), dtype=dtype)).data.sum() == 6


def test_not_a_number_is_counted() -> None:
    data = torch.zeros((1, 2, 2, 2))
    data[0, 0, 0] = torch.tensor([torch.nan, torch.inf])
    assert Image(data, Grid.from_spacing((2, 2, 2))).nonfinite_count == 2


def test_mask_takes_the_grid_of_its_image_within_tolerance() -> None:
    grid = GRIDS["oblique"]
    noisy = Grid(grid.shape, grid.matrix + np.pad(np.full((3, 4), 1e-6), ((0, 1), (0, 0))))
    mask = Image(torch.ones((1, *grid.shape), dtype=torch.uint8), noisy, "mask.nii")
    assert mask.on_grid(grid).grid == grid
    with pytest.raises(InputError, match=r"mask.nii does not lie on the grid .*voxels away"):
        mask.on_grid(Grid(grid.shape, grid.matrix + 1.0 * (np.arange(16).reshape(4, 4) == 3)))
    with pytest.raises(InputError, match="has 11x13x9 voxels"):
        mask.on_grid(GRIDS["planar"])


def test_wrong_things_are_refused() -> None:
    with pytest.raises(InputError, match="not an image"):
        from_any(42)
    with pytest.raises(InputError, match="has its own"):
        from_any(Image(torch.zeros((1, 2, 2, 2)), Grid.from_spacing((2, 2, 2))), spacing_mm=1)
    with pytest.raises(InputError, match="2 or 3 axes"):
        from_any(np.zeros((2, 2, 2, 2)))
    with pytest.raises(InputError, match="values of type object; give numbers"):
        from_any(np.array([["a", 1], [2, None]], dtype=object))
    with pytest.raises(InputError, match="complex"):
        from_any(np.zeros((2, 2), complex))
    with pytest.raises(InputError, match="one per axis"):
        from_any(np.zeros((2, 2)), spacing_mm=(1, 1, 1))
    with pytest.raises(InputError, match="does not fit"):
        Image(torch.zeros((1, 2, 2, 2)), Grid.from_spacing((2, 2, 3)))
    with pytest.raises(InputError, match="4-D image with 5 volumes"):
        from_any(nibabel.Nifti1Image(np.zeros((2, 2, 2, 5), np.float32), np.eye(4)))


def test_many_axes_are_told_how_to_give_channels():
    with pytest.raises(InputError, match=r"has 4; give channels as a list of arrays"):
        Image.from_array(np.zeros((2, 3, 4, 5)))

"""TIFF files of microscopes and programs are read with their axes, channels and spacing."""

import numpy as np
import pytest
import tifffile
import torch

import warpfactor as wf
from warpfactor.errors import FileError, InputError


def stack(shape, dtype="uint16"):
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


def test_an_imagej_hyperstack_has_slices_channels_and_spacing(tmp_path):
    """40 slices of two channels, 0.65 x 0.65 x 2.5 micrometres: one image, not 80 slices of a millimetre."""
    voxels = stack((40, 2, 20, 30))
    path = tmp_path / "cells.tif"
    tifffile.imwrite(
        path,
        voxels,
        imagej=True,
        resolution=(1 / 0.65, 1 / 0.65),
        metadata={"axes": "ZCYX", "spacing": 2.5, "unit": "um"},
    )
    image = wf.read_image(path)
    assert image.channels == 2
    assert image.grid.shape == (40, 20, 30)
    assert np.allclose(image.grid.spacing_mm, (0.0025, 0.00065, 0.00065), rtol=1e-5)
    assert torch.equal(image.data, torch.from_numpy(voxels.transpose(1, 0, 2, 3).astype(np.float32)))


@pytest.mark.parametrize("unit", ["um", "micron", "\\u00B5m"])
def test_all_spellings_of_a_micrometre(tmp_path, unit):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stack((20, 30)), imagej=True, resolution=(2, 2), metadata={"unit": unit})
    assert np.allclose(wf.read_image(path).grid.spacing_mm[1:], 0.0005)


def test_an_ome_file_has_physical_sizes_with_units(tmp_path):
    path = tmp_path / "a.ome.tif"
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 500, "PhysicalSizeYUnit": "nm"}
    voxels = stack((3, 6, 20, 30))
    tifffile.imwrite(path, voxels, metadata={"axes": "CZYX", "PhysicalSizeZ": 3, **sizes})
    image = wf.read_image(path)
    assert image.channels == 3
    assert image.grid.shape == (6, 20, 30)
    assert np.allclose(image.grid.spacing_mm, (0.003, 0.0005, 0.0005))
    assert torch.equal(image.data, torch.from_numpy(voxels.astype(np.float32)))


def test_a_plain_file_has_its_resolution_or_pixels_of_a_millimetre(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stack((20, 30), "uint8"), resolution=(100, 50), resolutionunit="CENTIMETER")
    image = wf.read_image(path)
    assert image.grid.ndim == 2
    assert np.allclose(image.grid.spacing_mm[1:], (0.2, 0.1))
    tifffile.imwrite(path, stack((20, 30), "uint8"))
    assert wf.read_image(path).grid.spacing_mm[1:] == (1.0, 1.0)


def test_colours_are_channels_and_an_opaque_alpha_is_left_out(tmp_path):
    voxels = stack((20, 30, 4), "uint8")
    voxels[..., 3] = 255
    tifffile.imwrite(tmp_path / "a.tif", voxels, photometric="rgb", extrasamples=["unassalpha"])
    image = wf.read_image(tmp_path / "a.tif")
    assert image.channels == 3
    assert torch.equal(image.data[:, 0], torch.from_numpy(voxels[..., :3].transpose(2, 0, 1).astype(np.float32)))


@pytest.mark.parametrize("kind", ["uint8", "uint16", "int16", "float32", "uint32"])
def test_labels_are_exact_and_what_we_write_is_read_again(tmp_path, kind):
    voxels = stack((5, 20, 30), kind)
    tifffile.imwrite(tmp_path / "a.tif", voxels, photometric="minisblack")
    labels = wf.read_labels(tmp_path / "a.tif")
    assert torch.equal(labels.data[0], torch.from_numpy(voxels.astype(np.int32)))
    wf.write_image(wf.read_image(tmp_path / "a.tif"), tmp_path / "b.tif")
    assert torch.equal(wf.read_image(tmp_path / "b.tif").data, wf.read_image(tmp_path / "a.tif").data)


def test_what_cannot_be_one_image_is_named(tmp_path):
    path = tmp_path / "film.tif"
    tifffile.imwrite(path, stack((7, 20, 30)), imagej=True, metadata={"axes": "TYX"})
    with pytest.raises(FileError, match=r"film.tif: has 7 time points, but a single image is needed; save one"):
        wf.read_image(path)
    path.write_bytes(b"II*\0 nothing")
    with pytest.raises(FileError, match=r"film.tif: cannot be read as a TIFF \(is truncated"):
        wf.read_image(path)


def test_of_several_images_the_first_is_used_and_said(tmp_path):
    path = tmp_path / "slide.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(stack((40, 60), "uint8"))
        file.write(stack((20, 30), "uint8"))
    with pytest.warns(UserWarning, match="holds 2 images"):
        assert wf.read_image(path).grid.shape == (1, 40, 60)


def test_a_spacing_may_be_given_for_a_file(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, stack((20, 30), "uint8"))
    image = wf.io.from_any(path, spacing_mm=(0.5, 0.25))
    assert image.grid.spacing_mm[1:] == (0.5, 0.25)
    with pytest.raises(FileError, match=r"a.tif: .*give one number above 0 in mm, or 2, since the image is 2-D"):
        wf.io.from_any(path, spacing_mm=(1, 1, 1))
    with pytest.raises(InputError, match="has its own"):
        wf.io.from_any(image, spacing_mm=1)


def test_channels_count_from_one():
    image = wf.Image.from_array(
        np.stack([np.full((4, 5), k) for k in (1.0, 2.0)]), grid=wf.Grid.from_spacing((4, 5), 1.0)
    )
    assert float(image.with_channels(2).data.mean()) == 2
    assert image.with_channels((2, 1)).data[:, 0, 0, 0].tolist() == [2, 1]
    for wrong in (0, 3, ()):
        with pytest.raises(InputError, match=r"has 2 channels; channel . cannot be chosen, they count from 1"):
            image.with_channels(wrong)


def test_a_file_that_is_no_tiff_is_named(tmp_path):
    (tmp_path / "a.tif").write_bytes(b"no picture at all")
    with pytest.raises(FileError, match=r"a.tif: cannot be read as a TIFF \(it is not a TIFF file"):
        wf.read_image(tmp_path / "a.tif")

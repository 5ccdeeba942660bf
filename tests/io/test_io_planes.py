"""NIfTI files that are written plane by plane or read without ITK: the same bytes and numbers as by ITK."""

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, noise, smooth_warp
from warpfactor.errors import FileError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io import planes, read_image, write_image, write_transform

SLICE = Grid((1, 7, 5), GRIDS["oblique"].matrix, 3)


@pytest.mark.parametrize("name", [*GRIDS, "one slice"])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_images_and_fields_are_the_bytes_that_itk_writes(
    name: str, suffix: str, generator: torch.Generator, tmp_path: Path
) -> None:
    grid = GRIDS.get(name, SLICE)
    image, warp = noise(grid, generator), smooth_warp(grid)
    several = Image(torch.randn((2, *grid.shape), generator=generator), grid)
    write_image(image, tmp_path / f"image{suffix}", rough=True)
    write_image(several, tmp_path / f"several{suffix}", rough=True)
    write_transform(warp, tmp_path / f"field{suffix}")
    theirs = {
        "image": image.to_sitk(),
        "several": several.to_sitk(),
        "field": itk.field_to_sitk(warp.displacement, grid, torch.float32),
    }
    for kind, written in theirs.items():
        SimpleITK.WriteImage(written, str(tmp_path / "itk.nii"))
        ours = (tmp_path / f"{kind}{suffix}").read_bytes()
        ours = gzip.decompress(ours) if suffix == ".nii.gz" else ours
        assert ours == (tmp_path / "itk.nii").read_bytes(), kind


def test_axes_that_the_format_cannot_count_are_left_to_itk() -> None:
    assert not planes.fits(Path("a.nii.gz"), Grid.from_spacing((40_000, 2)))
    assert not planes.fits(Path("a.nrrd"), GRIDS["lps"])


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "u2", "i4", "u4", "f4", "f8"])
def test_voxels_are_read_once_and_are_those_of_the_file(
    kind: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    array = (rng.random((4, 5, 6)) * 100).astype(np.dtype(kind))
    header = nibabel.Nifti1Header(endianness=order)
    header.set_data_dtype(np.dtype(kind))
    affine = np.diag([-1.0, -2, 3, 1])
    for name in ("image.nii", "image.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(array, affine, header), tmp_path / name)
    theirs = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "image.nii")))
    monkeypatch.setattr(SimpleITK, "ReadImage", None)
    for name in ("image.nii", "image.nii.gz"):
        ours = read_image(tmp_path / name)
        np.testing.assert_array_equal(ours.data[0].numpy(), array.T.astype(np.float32))
        np.testing.assert_array_equal(ours.data[0].numpy(), theirs.astype(np.float32))
        np.testing.assert_allclose(ours.grid.spacing_mm, (3, 2, 1))


@pytest.mark.parametrize("scaling", [(2.0, 5.0), (1.0, 0.0), (1.0, -3.0)])
def test_scaled_voxels_and_what_is_not_finite(scaling: tuple[float, float], tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array[0, 1, 2], array[1, 0, 0] = np.nan, np.inf
    image = nibabel.Nifti1Image(array, np.eye(4))
    image.header.set_slope_inter(*scaling)
    nibabel.save(image, tmp_path / "scaled.nii.gz")
    raw = bytearray(gzip.decompress((tmp_path / "scaled.nii.gz").read_bytes()))
    raw[112:120] = np.array(scaling, "<f4").tobytes()
    (tmp_path / "scaled.nii").write_bytes(raw)
    ours = read_image(tmp_path / "scaled.nii")
    np.testing.assert_array_equal(ours.data[0].numpy(), scaling[0] * array.T + scaling[1])
    assert ours.nonfinite_count == 2


def test_a_damaged_file_is_noticed(tmp_path: Path, generator: torch.Generator) -> None:
    large = Image(torch.randn((1, 80, 80, 80), generator=generator), Grid.from_spacing((80, 80, 80)))
    write_image(large, tmp_path / "image.nii.gz")
    content = bytearray((tmp_path / "image.nii.gz").read_bytes())
    content[-8] ^= 0xFF  # of the checksum
    (tmp_path / "image.nii.gz").write_bytes(content)
    with pytest.raises(FileError, match=r"image.nii.gz: is damaged"):
        read_image(tmp_path / "image.nii.gz")

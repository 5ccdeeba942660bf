"""NIfTI files mean the same to warpfactor, ITK and nibabel: voxels, geometry, scaling, NIfTI-1 and NIfTI-2."""

import gzip
import itertools
import warnings
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
from warpfactor.geometry.transform import Warp
from warpfactor.io import (
    GeometryWarning,
    count_volumes,
    nifti,
    read_image,
    read_labels,
    read_series,
    read_transform,
    write_image,
    write_labels,
    write_transform,
)
from warpfactor.io.voxels import VoxelSource

SLICE = Grid((1, 7, 5), GRIDS["oblique"].matrix, 3)
NUMBERS = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
VOXELS = 352  # where the voxels of a NIfTI-1 file start
UNUSED = ("regular",)  # left over from the ANALYZE format
ROUNDED = ("quatern_b", "quatern_c", "quatern_d", "srow_x", "srow_y", "srow_z")


@pytest.mark.parametrize("name", [*GRIDS, "one slice"])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_files_have_the_header_and_the_bytes_that_itk_writes(
    name: str, suffix: str, generator: torch.Generator, tmp_path: Path
) -> None:
    grid = GRIDS.get(name, SLICE)
    image, several, warp = noise(grid, generator), noise(grid, generator, channels=2), smooth_warp(grid)
    write_image(image, tmp_path / f"image{suffix}")
    write_image(several, tmp_path / f"several{suffix}")
    write_transform(warp, tmp_path / f"field{suffix}")
    theirs = {
        "image": image.to_sitk(),
        "several": several.to_sitk(),
        "field": itk.field_to_sitk(warp.displacement, grid, torch.float32),
    }
    for kind, written in theirs.items():
        SimpleITK.WriteImage(written, str(tmp_path / "itk.nii"))
        ours = _content(tmp_path / f"{kind}{suffix}")
        expected = _content(tmp_path / "itk.nii")
        assert ours[VOXELS:] == expected[VOXELS:], kind
        _assert_same_header(ours, expected)


def _content(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def _assert_same_header(ours: bytes, theirs: bytes) -> None:
    """Equal in every field; matrices up to the rounding of float32."""
    first, second = (nibabel.Nifti1Header(raw[:348], check=False) for raw in (ours, theirs))
    for key in dict(first):
        if key == "pixdim":
            spatial = slice(0, 1 + min(3, int(first["dim"][0])))
            np.testing.assert_allclose(first[key][spatial], second[key][spatial], rtol=3e-7)
        elif key in ROUNDED:
            np.testing.assert_allclose(first[key], second[key], rtol=1e-6, atol=1e-6, err_msg=key)
        elif key not in UNUSED:
            np.testing.assert_array_equal(first[key], second[key], err_msg=key)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("version", [1, 2])
def test_every_number_type_is_read_as_nibabel_reads_it(
    version: int, kind: str, order: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    array = (rng.random((4, 5, 6)) * 100).astype(np.dtype(kind))
    image = _make_image(version, array, np.diag([-1.0, -2, 3, 1]), order)
    for name in ("image.nii", "image.nii.gz"):
        nibabel.save(image, tmp_path / name)
        np.testing.assert_array_equal(nifti.read(tmp_path / name).data[0, 0], array.T)
        ours = read_image(tmp_path / name)
        np.testing.assert_array_equal(ours.data[0].numpy(), array.T.astype(np.float32))
        np.testing.assert_allclose(ours.grid.spacing_mm, (3, 2, 1))
        np.testing.assert_allclose(ours.grid.matrix, Image.from_nibabel(image).grid.matrix)


def _make_image(version: int, array: np.ndarray, affine: np.ndarray, order: str = "<") -> nibabel.Nifti1Image:
    header_type, image_type = {
        1: (nibabel.Nifti1Header, nibabel.Nifti1Image),
        2: (nibabel.Nifti2Header, nibabel.Nifti2Image),
    }[version]
    header = header_type(endianness=order)
    header.set_data_dtype(array.dtype)
    return image_type(array, affine, header)


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_number_type_survives_the_round_trip(kind: str, tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(np.dtype(kind))
    source = VoxelSource(lambda *_: iter([array[:1], array[1:]]), array.dtype, Grid.from_spacing(array.shape))
    nifti.write(source, tmp_path / "image.nii.gz", force=False)
    again = nifti.read(tmp_path / "image.nii.gz").data
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again[0, 0], array)
    theirs = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "image.nii.gz")))
    assert theirs.dtype == array.dtype
    np.testing.assert_array_equal(theirs, array)


@pytest.mark.parametrize("names", ["RGB", "RGBA"])
def test_colours_become_channels(names: str, tmp_path: Path, rng: np.random.Generator) -> None:
    numbers = rng.integers(0, 255, (4, 5, 6, len(names)), dtype=np.uint8)
    coloured = numbers.view([(letter, "u1") for letter in names])[..., 0]
    nibabel.save(nibabel.Nifti1Image(coloured, np.eye(4)), tmp_path / "colour.nii.gz")
    ours = nifti.read(tmp_path / "colour.nii.gz").data[0]
    np.testing.assert_array_equal(ours, numbers.transpose(3, 2, 1, 0))
    theirs = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "colour.nii.gz")))
    np.testing.assert_array_equal(ours, np.moveaxis(theirs, -1, 0))


@pytest.mark.parametrize("kind", ["i2", "f4", "f8"])
@pytest.mark.parametrize("scaling", [(2.0, 5.0), (1.0, 0.0), (1.0, -3.0), (0.0, 4.0), (np.nan, np.nan), (0.1, 0.25)])
def test_slope_and_intercept_apply(scaling: tuple[float, float], kind: str, tmp_path: Path) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    if kind != "i2":
        array[0, 1, 2], array[1, 0, 0] = np.nan, np.inf
    header = nibabel.Nifti1Header()
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    header.set_qform(np.eye(4), code=1)
    header["scl_slope"], header["scl_inter"] = scaling
    with (tmp_path / "scaled.nii").open("wb") as stream:
        header.write_to(stream)
        stream.write(array.tobytes("F"))
    slope, intercept = (float(header[key]) for key in ("scl_slope", "scl_inter"))
    applies = np.isfinite(slope) and slope != 0
    expected = array.T.astype(np.float64) * slope + intercept if applies else array.T.astype(np.float64)
    ours = read_image(tmp_path / "scaled.nii")
    np.testing.assert_array_equal(ours.data[0].numpy(), expected.astype(np.float32))
    assert ours.nonfinite_count == (0 if kind == "i2" else 2)


def test_scaled_labels_stay_labels(tmp_path: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((2, 3, 4))
    header.set_qform(np.eye(4), code=1)
    header["scl_slope"], header["scl_inter"] = 10, 1
    with (tmp_path / "labels.nii").open("wb") as stream:
        header.write_to(stream)
        stream.write(np.arange(24, dtype="<i2").tobytes())
    labels = read_labels(tmp_path / "labels.nii")
    np.testing.assert_array_equal(labels.data.numpy().ravel(), np.arange(24) * 10 + 1)
    write_labels(labels, tmp_path / "again.nii", like=tmp_path / "labels.nii")
    assert nifti.read(tmp_path / "again.nii").data.dtype == np.int32


FORMS = {
    "equal": np.eye(4),
    "shifted": np.eye(4) + 3 * np.eye(4, k=3),
    "sheared": np.eye(4) + 0.1 * np.eye(4, k=1) * np.array([[1], [0], [0], [0]]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unit", ["mm", "meter", "micron"])
def test_the_form_that_itk_uses_is_used(form: str, unit: str, tmp_path: Path) -> None:
    """Over all pairs of codes, for an sform that equals the qform or differs from it."""
    qform = np.array([[0, -1.5, 0, 10], [2, 0, 0, -20], [0, 0, 3, 5], [0, 0, 0, 1.0]])
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.uint8)
    header.set_data_shape((3, 4, 5))
    header.set_xyzt_units(unit)
    path = tmp_path / "forms.nii"
    for codes in itertools.product(range(5), repeat=2):
        header.set_qform(qform, code=codes[0])
        header.set_sform(FORMS[form] @ qform, code=codes[1])
        with path.open("wb") as stream:
            header.write_to(stream)
            stream.write(bytes(60))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ours = nifti.read(path).grid
        conflict = 0 not in codes and form != "equal"
        alone = codes[0] == 0 and codes[1] > 0 and form == "sheared"
        assert [entry.category for entry in caught] == [GeometryWarning] * (conflict or alone), codes
        if alone:
            with pytest.raises(RuntimeError, match="orthonormal"):
                SimpleITK.ReadImage(str(path))
        else:
            theirs = itk.grid_of(SimpleITK.ReadImage(str(path)))
            np.testing.assert_allclose(ours.matrix, theirs.matrix, rtol=1e-6, atol=1e-9, err_msg=str(codes))


def test_a_rotation_by_half_a_turn_is_no_broken_quaternion(tmp_path: Path) -> None:
    """Such a quaternion has no real part, which rounding may turn into the root of a negative number."""
    angle = np.deg2rad(33)
    axis = np.array([np.cos(angle), np.sin(angle), 0])
    affine = np.eye(4)
    affine[:3, :3] = 2 * np.outer(axis, axis) - np.eye(3)
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.uint8)
    header.set_data_shape((3, 4, 5))
    header.set_qform(affine, code=1)
    with (tmp_path / "half.nii").open("wb") as stream:
        header.write_to(stream)
        stream.write(bytes(60))
    theirs = itk.grid_of(SimpleITK.ReadImage(str(tmp_path / "half.nii")))
    np.testing.assert_allclose(read_image(tmp_path / "half.nii").grid.matrix, theirs.matrix, atol=1e-6)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("order", "<>")
def test_nifti_2_means_the_same_as_nifti_1(name: str, order: str, generator: torch.Generator, tmp_path: Path) -> None:
    """SimpleITK does not read NIfTI-2, so the same image is given to it as NIfTI-1."""
    image = noise(GRIDS[name], generator)
    write_image(image, tmp_path / "one.nii.gz")
    first = nibabel.load(tmp_path / "one.nii.gz")
    header = nibabel.Nifti2Header.from_header(first.header).as_byteswapped(order)
    nibabel.save(nibabel.Nifti2Image(np.asanyarray(first.dataobj), None, header), tmp_path / "two.nii.gz")
    assert int.from_bytes(_content(tmp_path / "two.nii.gz")[:4], "little" if order == "<" else "big") == 540
    ours = read_image(tmp_path / "two.nii.gz")
    theirs = SimpleITK.ReadImage(str(tmp_path / "one.nii.gz"))
    assert torch.equal(ours.data, image.data)
    assert torch.equal(ours.data, itk.image_from_sitk(theirs)[0])
    assert ours.grid.ndim == image.grid.ndim
    np.testing.assert_allclose(ours.grid.matrix, itk.grid_of(theirs).matrix, atol=1e-5)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_axes_that_nifti_1_cannot_count_are_written_as_nifti_2(suffix: str, tmp_path: Path) -> None:
    grid = Grid.from_spacing((2, 40_000), (0.5, 0.25))
    image = Image(torch.arange(80_000, dtype=torch.int32).reshape(1, 1, 2, 40_000), grid)
    write_image(image, tmp_path / f"long{suffix}")
    theirs = nibabel.load(tmp_path / f"long{suffix}")
    assert isinstance(theirs, nibabel.Nifti2Image)
    np.testing.assert_array_equal(np.asanyarray(theirs.dataobj).T, image.data[0, 0].numpy())
    again = read_labels(tmp_path / f"long{suffix}")
    assert torch.equal(again.data, image.data)
    assert again.grid == grid
    warp = Warp(torch.rand((3, *grid.shape)) * torch.tensor([0, 1, 1]).reshape(3, 1, 1, 1), grid)
    write_transform(warp, tmp_path / f"warp{suffix}")
    found = read_transform(tmp_path / f"warp{suffix}")
    assert isinstance(found, Warp) and found.grid == grid
    torch.testing.assert_close(found.displacement.float(), warp.displacement)


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("name", ["planar", "oblique slice", "axial slice"])
def test_channels_of_one_slice_keep_their_place(
    name: str, channels: int, generator: torch.Generator, tmp_path: Path
) -> None:
    """Vector files do not store whether they are 2-D; a slice that does not lie in the plane z = 0 is 3-D."""
    axial = Grid((1, 7, 5), GRIDS["lps"].matrix, 3)
    grid = {"planar": GRIDS["planar"], "oblique slice": SLICE, "axial slice": axial}[name]
    image = noise(grid, generator, channels=channels)
    write_image(image, tmp_path / "channels.nii.gz")
    again = read_image(tmp_path / "channels.nii.gz")
    assert torch.equal(again.data, image.data)
    assert again.grid.ndim == grid.ndim
    assert again.grid.same_space(grid)


def test_ras_displacements_are_turned_as_in_itk(tmp_path: Path, rng: np.random.Generator) -> None:
    """Intent 1006 (displacement vector) holds RAS vectors by the standard, intent 1007 holds what ITK writes."""
    vectors = rng.normal(size=(4, 5, 6, 1, 3)).astype(np.float32)
    for intent in (1006, 1007):
        image = nibabel.Nifti1Image(vectors, np.eye(4))
        image.header["intent_code"] = intent
        nibabel.save(image, tmp_path / f"{intent}.nii.gz")
        theirs = SimpleITK.ReadImage(str(tmp_path / f"{intent}.nii.gz"))
        expected = np.moveaxis(SimpleITK.GetArrayFromImage(theirs), -1, 0)
        np.testing.assert_array_equal(nifti.read(tmp_path / f"{intent}.nii.gz").data[0], expected)


def test_the_name_does_not_have_to_tell_the_truth_about_compression(tmp_path: Path, generator: torch.Generator) -> None:
    image = noise(GRIDS["lps"], generator)
    write_image(image, tmp_path / "image.nii.gz")
    (tmp_path / "packed.nii").write_bytes((tmp_path / "image.nii.gz").read_bytes())
    (tmp_path / "plain.nii.gz").write_bytes(_content(tmp_path / "image.nii.gz"))
    for name in ("packed.nii", "plain.nii.gz"):
        assert torch.equal(read_image(tmp_path / name).data, image.data)


def test_extensions_of_the_header_are_skipped(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    image = nibabel.Nifti1Image(array, np.eye(4))
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"written by a scanner" * 20))
    nibabel.save(image, tmp_path / "extended.nii.gz")
    np.testing.assert_array_equal(nifti.read(tmp_path / "extended.nii.gz").data[0, 0], array.T)


@pytest.mark.parametrize("where", [-8, -4, 200_000])
def test_a_damaged_file_is_noticed(where: int, tmp_path: Path, generator: torch.Generator) -> None:
    """In its checksum, its length or its content."""
    large = Image(torch.randn((1, 80, 80, 80), generator=generator), Grid.from_spacing((80, 80, 80)))
    write_image(large, tmp_path / "image.nii.gz")
    content = bytearray((tmp_path / "image.nii.gz").read_bytes())
    content[where] ^= 0xFF
    (tmp_path / "image.nii.gz").write_bytes(content)
    with pytest.raises(FileError, match=r"image.nii.gz: is (damaged|truncated).*copy it again"):
        read_image(tmp_path / "image.nii.gz")


def test_equal_voxels_give_equal_files(tmp_path: Path, generator: torch.Generator) -> None:
    image = noise(GRIDS["oblique"], generator)
    for name in ("first.nii.gz", "second.nii.gz"):
        write_image(image, tmp_path / name)
    assert (tmp_path / "first.nii.gz").read_bytes() == (tmp_path / "second.nii.gz").read_bytes()


def test_a_series_in_milliseconds_has_its_step_in_seconds(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(np.arange(48, dtype=np.float32).reshape(2, 3, 4, 2), np.eye(4))
    image.header.set_xyzt_units("mm", "msec")
    image.header["pixdim"][4] = 2500
    nibabel.save(image, tmp_path / "series.nii.gz")
    series = read_series(tmp_path / "series.nii.gz")
    assert series.step == pytest.approx(2.5)
    assert count_volumes(tmp_path / "series.nii.gz") == len(series) == 2
    np.testing.assert_array_equal(series[1].data[0].numpy(), np.asanyarray(image.dataobj)[..., 1].T)

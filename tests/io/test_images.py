"""Image files: round trips, label and mask types, and one clear FileError for every broken file."""

import gzip
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, blobs, noise
from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.io import (
    GeometryWarning,
    count_volumes,
    from_any,
    read_image,
    read_labels,
    read_mask,
    read_series,
    write_image,
    write_series,
)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("suffix", [".nii.gz", ".nii", ".nrrd", ".mha"])
def test_images_survive_the_round_trip(name: str, suffix: str, generator: torch.Generator, tmp_path: Path) -> None:
    image = noise(GRIDS[name], generator)
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    write_image(image, first)
    again = read_image(first)
    assert torch.equal(again.data, image.data)
    assert again.grid.same_space(image.grid)
    assert again.grid.ndim == image.grid.ndim
    assert again.name == first.name
    write_image(again, second)
    assert read_image(second).grid.same_space(again.grid, 1e-5)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [first.name, second.name]


def test_big_endian_files_are_read(generator: torch.Generator, tmp_path: Path) -> None:
    array = noise(GRIDS["lps"], generator).data[0].numpy()
    header = nibabel.Nifti1Header(endianness=">")
    nibabel.save(nibabel.Nifti1Image(array, np.diag([1.0, 2, 3, 1]), header), tmp_path / "big.nii.gz")
    ours = read_image(tmp_path / "big.nii.gz")
    np.testing.assert_array_equal(ours.data[0].numpy(), array.T)
    np.testing.assert_allclose(ours.grid.spacing_mm, (3, 2, 1))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
def test_labels_are_exact_int32(dtype: type, tmp_path: Path) -> None:
    labels = np.arange(24).reshape(2, 3, 4).astype(dtype) * 5
    path = tmp_path / "labels.nii.gz"
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(labels), path)
    ours = read_labels(path)
    assert ours.data.dtype == torch.int32
    np.testing.assert_array_equal(ours.data[0].numpy(), labels)
    write_image(ours, tmp_path / "again.nii.gz")
    assert torch.equal(read_labels(tmp_path / "again.nii.gz").data, ours.data)


def test_large_label_numbers_are_exact_where_float32_is_not(tmp_path: Path) -> None:
    labels = Image(torch.full((1, 2, 3, 4), 2**24 + 1, dtype=torch.int32), from_any(np.zeros((2, 3, 4))).grid)
    write_image(labels, tmp_path / "labels.nii.gz")
    assert torch.equal(read_labels(tmp_path / "labels.nii.gz").data, labels.data)


def test_mask_is_one_where_not_zero(tmp_path: Path) -> None:
    write_image(blobs(GRIDS["las"]), tmp_path / "mask.nii.gz")
    mask = read_mask(tmp_path / "mask.nii.gz")
    assert mask.data.dtype == torch.uint8
    assert torch.equal(mask.data.bool(), blobs(GRIDS["las"]).data != 0)


@pytest.mark.parametrize("name", ["volume.png", "volume.JPG"])
def test_a_volume_is_not_cut_down_to_a_plane(name: str, tmp_path: Path) -> None:
    volume = Image(torch.zeros(1, 3, 4, 5), Grid.from_spacing((3, 4, 5), 1.0))
    for write in (lambda: write_image(volume, tmp_path / name), lambda: write_series([volume], tmp_path / name)):
        with pytest.raises(FileError, match=r"stores one slice.*write \.nii\.gz"):
            write()
    assert not list(tmp_path.iterdir())


def test_png_keeps_whole_numbers(tmp_path: Path) -> None:
    image = from_any(np.arange(20.0).reshape(4, 5) * 100)
    write_image(image, tmp_path / "image.png")
    again = read_image(tmp_path / "image.png")
    assert torch.equal(again.data, image.data)
    assert again.grid.ndim == 2
    with pytest.raises(FileError, match=r"0 to 65535.*write .nii.gz"):
        write_image(Image(-image.data, image.grid), tmp_path / "negative.png")
    nearly = image.data.clone().fill_(100.0)
    nearly[..., 0, 0] += 1e-5
    write_image(Image(nearly, image.grid), tmp_path / "nearly.png")
    with pytest.raises(FileError, match=r"has fractions between 0\.1 and 6\.4"):
        write_image(Image(torch.linspace(0.1, 6.4, image.data.numel()).reshape(image.data.shape), image.grid), "j.png")


def test_dicom_folder_is_read(tmp_path: Path) -> None:
    array = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5)
    _write_dicom(tmp_path / "scan", array, "1.2.3.4")
    image = read_image(tmp_path / "scan")
    np.testing.assert_array_equal(image.data[0].numpy(), array)
    np.testing.assert_allclose(image.grid.spacing_mm, (2.5, 1, 1))
    _write_dicom(tmp_path / "scan", array, "1.2.3.5")
    with pytest.raises(FileError, match="2 DICOM series"):
        read_image(tmp_path / "scan")


def test_an_incomplete_dicom_series_is_refused(tmp_path: Path) -> None:
    """A damaged file is not in the series, and a slice that is missing leaves a gap."""
    folder = tmp_path / "scan"
    _write_dicom(folder, np.zeros((4, 4, 5), dtype=np.int16), "1.2.3.4")
    last = folder / "1.2.3.4-3.dcm"
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(FileError, match=r"1\.2\.3\.4-3\.dcm cannot be read as part of the series"):
        read_image(folder)
    _write_dicom(folder, np.zeros((4, 4, 5), dtype=np.int16), "1.2.3.4")
    (folder / "1.2.3.4-1.dcm").unlink()
    with pytest.raises(FileError, match=r"The distance between its slices varies from 2\.5 to 5 mm; a slice may be"):
        read_image(folder)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_series_gives_volumes_one_by_one(
    suffix: str, channels: int, generator: torch.Generator, tmp_path: Path
) -> None:
    images = [noise(GRIDS["oblique"], generator, channels=channels) for _ in range(3)]
    path = tmp_path / f"series{suffix}"
    write_series(images, path, step=2.5)
    series = read_series(path)
    theirs = SimpleITK.ReadImage(str(path))
    assert (theirs.GetSize()[3], theirs.GetSpacing()[3], theirs.GetNumberOfComponentsPerPixel()) == (3, 2.5, channels)
    assert count_volumes(path) == 3
    assert (len(series), series.step) == (3, 2.5)
    for ours, expected in zip(series, images, strict=True):
        assert torch.equal(ours.data, expected.data)
        assert ours.grid.same_space(expected.grid)
    with pytest.raises(FileError, match="4-D image with 3 volumes"):
        read_image(path)
    write_series(images[:1], tmp_path / f"one{suffix}", step=4.0)
    assert torch.equal(read_image(tmp_path / f"one{suffix}").data, images[0].data)
    assert read_series(tmp_path / f"one{suffix}").step == 4.0
    assert count_volumes(tmp_path / "none.nii.gz") == 1


def test_one_slice_volume_keeps_its_place(tmp_path: Path) -> None:
    affine = GRIDS["oblique"].to_itk()
    image = SimpleITK.Image(5, 4, 1, SimpleITK.sitkFloat32)
    image.SetDirection(affine.direction)
    image.SetOrigin((1, 2, 3))
    SimpleITK.WriteImage(image, tmp_path / "slice.nii.gz")
    ours = read_image(tmp_path / "slice.nii.gz")
    assert (ours.grid.shape, ours.grid.ndim) == ((1, 4, 5), 3)
    np.testing.assert_allclose(ours.grid.index_to_world([[0, 0, 0]]), [[1, 2, 3]], atol=1e-5)


def test_forms_that_disagree_are_reported(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(np.zeros((4, 5, 6), np.float32), np.eye(4))
    shifted = np.eye(4)
    shifted[0, 3] = 3
    image.set_qform(np.eye(4), code=1)
    image.set_sform(shifted, code=1)
    nibabel.save(image, tmp_path / "forms.nii.gz")
    with pytest.warns(GeometryWarning, match=r"up to 3 voxels apart; the sform is used"):
        ours = read_image(tmp_path / "forms.nii.gz")
    np.testing.assert_allclose(ours.grid.index_to_world([[0, 0, 0]]), [[-3, 0, 0]])
    shifted[0, 3] = 1e-5
    image.set_sform(shifted, code=1)
    nibabel.save(image, tmp_path / "noise.nii.gz")
    read_image(tmp_path / "noise.nii.gz")  # a warning would fail the test


def test_sheared_sform_is_made_orthogonal(tmp_path: Path) -> None:
    affine = np.diag([1.0, 2, 3, 1])
    affine[0, 1] = 0.1
    image = nibabel.Nifti1Image(np.arange(24, dtype=np.float32).reshape(2, 3, 4), None)
    image.set_sform(affine, code=1)
    image.set_qform(None, code=0)
    nibabel.save(image, tmp_path / "shear.nii.gz")
    with pytest.warns(GeometryWarning, match="right angles"):
        ours = read_image(tmp_path / "shear.nii.gz")
    turn = ours.grid.matrix[:3, :3] / ours.grid.spacing_mm
    np.testing.assert_allclose(turn.T @ turn, np.eye(3), atol=1e-9)
    np.testing.assert_array_equal(ours.data[0].numpy(), np.asarray(image.dataobj).T)


def _write_dicom(folder: Path, array: np.ndarray, uid: str) -> None:
    folder.mkdir(exist_ok=True)
    for number, plane in enumerate(array):
        image = SimpleITK.GetImageFromArray(plane[None])
        image.SetSpacing((1, 1, 2.5))
        for tag, value in (
            ("0008|0060", "MR"),
            ("0020|000d", "1.2.3"),
            ("0020|000e", uid),
            ("0020|0032", f"0\\0\\{2.5 * number}"),
            ("0020|0037", "1\\0\\0\\0\\1\\0"),
            ("0020|0013", str(number)),
        ):
            image.SetMetaData(tag, value)
        writer = SimpleITK.ImageFileWriter()
        writer.KeepOriginalImageUIDOn()
        writer.SetFileName(str(folder / f"{uid}-{number}.dcm"))
        writer.Execute(image)


def _good(path: Path) -> None:
    array = np.random.default_rng(1).random((9, 10, 11), dtype=np.float32)
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), path)


def _cut(share: float) -> Callable[[Path], object]:
    """A compressed file of which only the start is left."""

    def make(path: Path) -> None:
        _good(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return make


def _cut_plain(path: Path) -> None:
    _good(path)
    path.write_bytes(gzip.decompress(path.read_bytes())[:2000])


def _field(**fields: object) -> Callable[[Path], object]:
    """A file with some fields of its header changed."""

    def make(path: Path) -> None:
        _good(path)
        content = gzip.decompress(path.read_bytes())
        header = nibabel.Nifti1Header(content[:348], check=False)
        for name, value in fields.items():
            header[name] = value
        path.write_bytes(gzip.compress(header.binaryblock + content[348:]))

    return make


def _array(shape: tuple[int, ...], dtype: type) -> Callable[[Path], object]:
    return lambda path: nibabel.save(nibabel.Nifti1Image(np.zeros(shape, dtype), np.eye(4)), path)


NO_AXES = {"qform_code": 0, "sform_code": 1, "srow_x": 0, "srow_y": 0, "srow_z": 0}
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "no such file"),
    "truncated gzip": (_cut(0.5), "is truncated"),
    "truncated": (_cut_plain, "is truncated"),
    "start of a header": (_cut(0.01), "is truncated"),
    "no checksum": (_cut(0.9999), "is truncated"),
    "text": (lambda path: path.write_text("hello\n" * 100), "not a NIfTI file"),
    "empty": (lambda path: path.write_bytes(b""), "not a NIfTI file"),
    "empty folder": (lambda path: path.mkdir(), "no DICOM series"),
    "complex": (_array((2, 2, 2), np.complex64), "complex"),
    "five dimensions": (_array((2, 2, 2, 1, 3), np.float32), "2 x 2 x 2 x 1 x 3.*intent code 1007"),
    "no dimensions": (_field(dim=[0, 11, 10, 9, 1, 1, 1, 1]), "claims 0 dimensions"),
    "one dimension": (_field(dim=[1, 990, 1, 1, 1, 1, 1, 1]), "an array of 990; an image has 2 or 3"),
    "too large": (_field(dim=[3, 32000, 32000, 32000, 1, 1, 1, 1]), "is truncated"),
    "zero spacing": (_field(pixdim=[1, 0, 1, 1, 0, 0, 0, 0]), r"spacing is 0 x 1 x 1 mm"),
    "no axes": (_field(**NO_AXES), "spacing 0 x 0 x 0 must be positive"),
    "no offset": (_field(vox_offset=np.nan), "vox_offset"),
    "unknown type": (_field(datatype=999), "unknown data type 999.*another number type"),
    "no intercept": (_field(scl_slope=2, scl_inter=np.nan), "correct the header"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_give_one_clear_sentence(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make, words = BROKEN[kind]
    path = tmp_path / "broken.nii.gz"
    make(path)
    with pytest.raises(FileError, match=words) as caught:
        read_image(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < 250
    assert capfd.readouterr().err == ""


def test_unreadable_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.docx"
    path.write_text("hello")
    with pytest.raises(FileError, match=r"notes.docx: cannot be read as an image") as caught:
        read_image(path)
    assert "\n" not in str(caught.value)


def test_labels_and_masks_that_are_none(tmp_path: Path, generator: torch.Generator) -> None:
    write_image(noise(GRIDS["lps"], generator), tmp_path / "noise.nii.gz")
    with pytest.raises(FileError, match="not integers"):
        read_labels(tmp_path / "noise.nii.gz")
    write_image(from_any(np.zeros((2, 3, 4))), tmp_path / "zero.nii.gz")
    with pytest.raises(FileError, match="empty"):
        read_mask(tmp_path / "zero.nii.gz")


def test_existing_files_are_kept_unless_forced(tmp_path: Path, generator: torch.Generator) -> None:
    path = tmp_path / "image.nii.gz"
    path.write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        write_image(noise(GRIDS["lps"], generator), path)
    assert path.read_text(encoding="utf-8") == "mine"
    write_image(noise(GRIDS["lps"], generator), path, force=True)
    assert read_image(path).grid.shape == GRIDS["lps"].shape


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_full_disk_is_noticed(suffix: str, tmp_path: Path, generator: torch.Generator) -> None:
    """A limit on the size of files fails a write in the middle, as a full disk does."""
    image = noise(GRIDS["lps"], generator)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(FileError, match=rf"image{suffix}: cannot be written \(File too large"):
            write_image(image, tmp_path / f"image{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_places_are_refused(tmp_path: Path, generator: torch.Generator) -> None:
    image = noise(GRIDS["lps"], generator)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot be created, because .* is a file"):
        write_image(image, tmp_path / "file" / "image.nii.gz")
    with pytest.raises(FileError, match="is a folder"):
        write_image(image, tmp_path)
    with pytest.raises(FileError, match="cannot be written"):
        write_image(image, tmp_path / "image.docx")
    with pytest.raises(InputError, match="at least one volume"):
        write_series([], tmp_path / "series.nii.gz")


def test_real_images_are_read(data_dir: Path) -> None:
    image = read_image(data_dir / "hippocampus" / "hippocampus_001_img.nii.gz")
    labels = read_labels(data_dir / "hippocampus" / "hippocampus_001_lab.nii.gz")
    assert labels.on_grid(image.grid).data.max() == 2
    assert image.nonfinite_count == 0


def test_landmark_indices_and_millimetres_agree_with_the_grid(data_dir: Path) -> None:
    table = np.genfromtxt(data_dir / "lung" / "landmarks_51_corrected.csv", delimiter=",", names=True)
    grid = read_image(data_dir / "lung" / "lung_fixed.nii.gz").grid
    index = np.stack([table[f"fix_{axis}"] for axis in "kji"], axis=1)
    world = np.stack([table[f"fix_{axis}_lps"] for axis in "xyz"], axis=1)
    np.testing.assert_allclose(grid.index_to_world(index), world, atol=1e-3)


def test_an_array_is_no_image_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Only an Image can be written.*ndarray"):
        write_image(np.zeros((4, 5, 6), dtype=np.float32), tmp_path / "array.nii.gz")  # type: ignore[arg-type]

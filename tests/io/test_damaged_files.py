"""Files that are damaged, or that lie about themselves, are refused with one sentence and never taken in."""

import gzip
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.geometry.itk import sitk
from warpfactor.io import read_labels

SHAPE = (5, 6, 7)


def whole(folder: Path, name: str) -> Path:
    """An image with the format of its suffix; integers that every format holds."""
    shape = SHAPE[1:] if Path(name).suffix in (".bmp", ".jpg", ".png") else SHAPE
    data = torch.arange(int(np.prod(shape)), dtype=torch.uint8).reshape(shape)
    wf.write_image(wf.Image.from_array(data, 2.0), folder / name)
    return folder / name


def nifti(folder: Path, changes: dict[int, bytes], name: str = "x.nii") -> Path:
    """A NIfTI file of float32 voxels in which the header has other bytes at some offsets."""
    data = torch.arange(float(np.prod(SHAPE))).reshape(SHAPE)
    wf.write_image(wf.Image.from_array(data), folder / "good.nii", force=True)
    raw = bytearray((folder / "good.nii").read_bytes())
    for offset, content in changes.items():
        raw[offset : offset + len(content)] = content
    (folder / name).write_bytes(raw)
    return folder / name


def meta(folder: Path, old: str, new: str, *, compressed: bool = False) -> Path:
    """A MetaImage with one line of its header replaced."""
    image = sitk.GetImageFromArray(np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE))
    sitk.WriteImage(image, str(folder / "x.mha"), compressed)
    raw = (folder / "x.mha").read_bytes()
    assert old.encode() in raw
    (folder / "x.mha").write_bytes(raw.replace(old.encode(), new.encode(), 1))
    return folder / "x.mha"


def text_transform(folder: Path, keep: int | None = None, **changes: str) -> Path:
    """A text file of an affine, cut after some letters or with other lines."""
    wf.write_transform(wf.Affine(np.diag([1.1, 0.9, 1.05, 1.0])), folder / "x.tfm", force=True)
    text = (folder / "x.tfm").read_text()
    for key, value in changes.items():
        lines = [f"{key}: {value}" if line.startswith(f"{key}:") else line for line in text.splitlines()]
        text = "\n".join(lines) + "\n"
    (folder / "x.tfm").write_text(text[:keep])
    return folder / "x.tfm"


def refused(reader, path, *words: str) -> None:
    with pytest.raises(wf.FileError) as found:
        reader(path)
    message = str(found.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 0.7, 0.8, 0.9, 0.97, 0.995])
def test_a_truncated_text_transform_is_not_an_identity(tmp_path, share):
    length = len(text_transform(tmp_path).read_text())
    refused(wf.read_transform, text_transform(tmp_path, int(share * length)))


@pytest.mark.parametrize("count", [0, 11, 13])
def test_a_transform_has_as_many_parameters_as_its_kind(tmp_path, count):
    path = text_transform(tmp_path, Parameters=" ".join(["1"] * count))
    refused(wf.read_transform, path, f"{count}", "12")


def test_a_transform_with_a_number_that_is_none_is_refused(tmp_path):
    refused(wf.read_transform, text_transform(tmp_path, Parameters=" ".join(["nan"] * 12)), "finite")


def test_a_whole_text_transform_is_read(tmp_path):
    found = wf.read_transform(text_transform(tmp_path))
    assert np.allclose(found.matrix, np.diag([1.1, 0.9, 1.05, 1.0]))


@pytest.mark.parametrize("name", [b"\xff\xfe\xff", b"Nonsense"])
def test_binary_transforms_with_names_that_are_none_are_refused(tmp_path, name):
    path = tmp_path / "x.mat"
    wf.write_transform(wf.Affine(np.eye(4)), path)
    raw = bytearray(path.read_bytes())
    raw[20 : 20 + len(name)] = name
    path.write_bytes(raw)
    refused(wf.read_transform, path)


@pytest.mark.parametrize("keep", [10, 60, 150, -1])
def test_a_truncated_binary_transform_is_refused(tmp_path, keep):
    path = tmp_path / "x.mat"
    wf.write_transform(wf.Affine(np.eye(4)), path)
    path.write_bytes(path.read_bytes()[:keep])
    refused(wf.read_transform, path)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_truncated_composite_is_refused(tmp_path, keep):
    path = tmp_path / "x.h5"
    wf.write_transform(wf.Affine(np.eye(4)), path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep * len(raw))])
    refused(wf.read_transform, path)


@pytest.mark.parametrize(("code", "bits"), [(0, 0), (1536, 128), (1, 1), (2048, 256)])
def test_data_types_without_numbers_that_can_be_used_are_refused(tmp_path, code, bits):
    changed = {70: struct.pack("<hh", code, bits), 40: struct.pack("<h", 2), 42: struct.pack("<hh", 2, 2)}
    refused(wf.read_image, nifti(tmp_path, changed))


@pytest.mark.parametrize("code", [128, 2304, 511, 1, 1536, 2048])
def test_data_types_that_are_no_image_are_refused(tmp_path, code):
    path = nifti(tmp_path, {70: struct.pack("<h", code)})
    refused(wf.read_transform, path)
    if code != 2304:  # four bytes of colour, as many as the header announces
        refused(wf.read_image, path)


@pytest.mark.parametrize("offset", [1, 100, 351, -5, 0.5])
def test_voxels_never_begin_inside_the_header(tmp_path, offset):
    refused(wf.read_image, nifti(tmp_path, {108: struct.pack("<f", offset)}), "vox_offset")


@pytest.mark.parametrize("offset", [float("nan"), float("inf"), 1e30])
def test_an_offset_beyond_all_files_is_refused(tmp_path, offset):
    refused(wf.read_image, nifti(tmp_path, {108: struct.pack("<f", offset)}))


def test_voxels_behind_a_header_that_names_no_offset_are_read(tmp_path):
    data = wf.read_image(nifti(tmp_path, {108: struct.pack("<f", 0.0)})).data
    assert torch.equal(data[0], torch.arange(210.0).reshape(SHAPE))


@pytest.mark.parametrize("size", [0, -3])
def test_sizes_must_be_positive(tmp_path, size):
    refused(wf.read_image, nifti(tmp_path, {44: struct.pack("<h", size)}), str(size))


def test_the_number_of_bits_must_fit_the_data_type(tmp_path):
    refused(wf.read_image, nifti(tmp_path, {72: struct.pack("<h", 16)}), "bitpix", "32", "16")


@pytest.mark.parametrize("field", [268, 272, 276, 280 + 12])
def test_an_origin_that_is_no_number_is_refused(tmp_path, field):
    nan = struct.pack("<f", float("nan"))
    refused(wf.read_image, nifti(tmp_path, {field: nan}), "finite")


def test_labels_of_64_bits_do_not_wrap(tmp_path):
    data = np.full((4, 4, 4), 2**63 + 5, np.uint64)
    sitk.WriteImage(sitk.GetImageFromArray(data), str(tmp_path / "x.nii"))
    refused(read_labels, tmp_path / "x.nii", "64")
    sitk.WriteImage(sitk.GetImageFromArray(data // 2**60), str(tmp_path / "small.nii"))
    assert int(read_labels(tmp_path / "small.nii").data.max()) == 8


def test_labels_beyond_all_integers_are_refused(tmp_path):
    slope = struct.pack("<ff", 1e38, 0.0)
    refused(read_labels, nifti(tmp_path, {112: slope}), "32 bits")


def test_a_small_file_cannot_ask_for_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("warpfactor.memory.available_bytes", lambda: 1 << 20)
    header = nifti(tmp_path, {42: struct.pack("<hhh", 200, 200, 200)}).read_bytes()[:352]
    (tmp_path / "bomb.nii.gz").write_bytes(gzip.compress(header + bytes(32_000_000), 1))
    with pytest.raises(wf.OutOfMemoryError, match=r"bomb.nii.gz: It needs about 32 MB of memory and 1 MB are"):
        wf.read_image(tmp_path / "bomb.nii.gz")


def test_voxels_after_the_last_are_told(tmp_path):
    path = nifti(tmp_path, {46: struct.pack("<h", 3)})
    with pytest.warns(UserWarning, match="336 bytes more than"):
        wf.read_image(path)


@pytest.mark.parametrize("number", ["2147483647", "0", "-1", "9", "x"])
def test_the_number_of_dimensions_of_a_metaimage_is_checked(tmp_path, number):
    refused(wf.read_image, meta(tmp_path, "NDims = 3", f"NDims = {number}"), "NDims")


def test_sizes_of_a_metaimage_are_checked(tmp_path):
    with pytest.raises(wf.OutOfMemoryError, match=r"x.mha: It needs about .* GB of memory"):
        wf.read_image(meta(tmp_path, "DimSize = 7 6 5", "DimSize = 2147483648 2147483648 2147483648"))
    refused(wf.read_image, meta(tmp_path, "DimSize = 7 6 5", "DimSize = 7 6 0"), "DimSize")
    refused(wf.read_image, meta(tmp_path, "DimSize = 7 6 5", "DimSize = 7 6"), "DimSize")
    refused(wf.read_image, meta(tmp_path, "DimSize = 7 6 5", "DimSize = 7 6 6"), "truncated")


@pytest.mark.parametrize("value", ["1e300 0 0", "nan 0 0", "inf 0 0", "0 0"])
def test_the_origin_of_a_metaimage_is_checked(tmp_path, value):
    refused(wf.read_image, meta(tmp_path, "Offset = 0 0 0", f"Offset = {value}"))


def test_the_axes_of_a_metaimage_are_checked(tmp_path):
    """ITK does not come to an end with these."""
    refused(wf.read_image, meta(tmp_path, "TransformMatrix = 1 0 0 0", "TransformMatrix = 1 0 0 1e308"), "1e+09")


def test_flipped_bits_in_a_compressed_metaimage_are_noticed(tmp_path):
    path = meta(tmp_path, "NDims", "NDims", compressed=True)
    good = path.read_bytes()
    start = good.index(b"ElementDataFile = LOCAL\n") + len(b"ElementDataFile = LOCAL\n")
    assert zlib.decompress(good[start:])
    for place in range(start + 2, len(good), 7):
        broken = bytearray(good)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        refused(wf.read_image, path)


@pytest.mark.parametrize("suffix", [".bmp", ".jpg", ".png", ".nrrd", ".mha", ".tif", ".nii", ".nii.gz"])
@pytest.mark.parametrize("share", [0.4, 0.7, 0.9, 0.98])
def test_truncated_images_are_refused(tmp_path, suffix, share):
    path = whole(tmp_path, f"x{suffix}")
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    refused(wf.read_image, path)


@pytest.mark.parametrize("suffix", [".bmp", ".jpg", ".png", ".nrrd", ".mha", ".tif"])
def test_a_name_that_lies_is_noticed(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(nifti(tmp_path, {70: struct.pack("<h", 2304)}).read_bytes())
    refused(wf.read_image, path)


def test_formats_without_a_check_of_their_header_are_tried_by_another_process(tmp_path):
    image = sitk.GetImageFromArray(np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE))
    sitk.WriteImage(image, str(tmp_path / "x.vtk"))
    assert wf.read_image(tmp_path / "x.vtk").grid.shape == SHAPE
    raw = (tmp_path / "x.vtk").read_bytes()
    (tmp_path / "x.vtk").write_bytes(raw[: len(raw) // 2])
    refused(wf.read_image, tmp_path / "x.vtk")


RECIPES = {
    "nan": {"deformable": {"step": float("nan")}},
    "nan iterations": {"deformable": {"iterations": [float("nan")]}},
    "huge iterations": {"deformable": {"iterations": [1e308, 1e308, 1e308]}},
    "inf iterations": {"deformable": {"iterations": [float("inf")] * 3}},
    "huge levels": {"deformable": {"levels": [1e308, 2, 1]}},
    "huge sigma": {"deformable": {"sigma_grad": 1e308}},
    "a list": {"deformable": [1, 2]},
    "a number": {"linear": 5},
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_with_impossible_numbers_are_refused(tmp_path, name):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(RECIPES[name]))
    refused(wf.recipe, path)


@pytest.mark.parametrize(("suffix", "text"), [(".json", "[" * 100_000), (".toml", "a = " + "[" * 100_000)])
def test_deep_nesting_is_refused(tmp_path, suffix, text):
    path = tmp_path / f"recipe{suffix}"
    path.write_text(text)
    refused(wf.recipe, path)


@pytest.mark.parametrize("value", [1e30, 2e3])
def test_a_gaussian_wider_than_any_image_is_refused(value):
    with pytest.raises(wf.InputError, match="sigma_grad"):
        wf.recipe("default").replace({"deformable.sigma_grad": value})

"""Images read in parts: the same voxels as read whole, in the same place; damage and what is missing is told."""

import errno

import numpy as np
import pytest
import tifffile
import torch

import warpfactor as wf
from warpfactor.errors import FileError, InputError
from warpfactor.io import omezarr
from warpfactor.io.lazy import boxes, held, open_lazily

zarr = pytest.importorskip("zarr", reason="zarr is not installed")

BOX = (slice(1, 4), slice(2, 9), slice(0, 5))
GRID = wf.Grid.from_itk((7, 11, 6), (1.0, -2.0, 3.0), (0.5, 0.6, 0.7), np.eye(3).ravel().tolist())
VOXELS = np.arange(6 * 11 * 7, dtype=np.int16).reshape(6, 11, 7)


def store(path, axes="zyx", shards=None, announced=2):
    """An OME-Zarr of two levels; more may be announced."""
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    datasets = []
    for level in range(announced):
        if level < 2:
            part = VOXELS[:: 1 + level, :: 1 + level, :: 1 + level]
            turned = part.transpose(["zyx".index(axis) for axis in axes])
            chunks = tuple(max(1, n // 3) for n in turned.shape)
            group.create_array(str(level), data=turned, chunks=chunks, shards=shards and tuple(2 * n for n in chunks))
        steps = [{"type": "scale", "scale": [float(1 + level)] * 3}]
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    named = [{"name": axis, "unit": "millimeter"} for axis in axes]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": named, "datasets": datasets}]}
    return path


def written(folder, name):
    image = wf.Image(torch.from_numpy(VOXELS)[None].to(torch.int32), GRID)
    wf.io.write_labels(image, folder / name)
    return folder / name


@pytest.mark.parametrize("axes", ["zyx", "xzy", "yxz"])
@pytest.mark.parametrize("shards", [None, True])
def test_a_box_of_an_ome_zarr(tmp_path, axes, shards):
    lazy = open_lazily(store(tmp_path / "a.ome.zarr", axes, shards))
    assert np.array_equal(lazy.read(0, BOX), VOXELS[BOX])
    assert (lazy.dtype, lazy.held_bytes, len(lazy.levels)) == (np.int16, 0, 1)
    assert lazy.levels[0].grid.spacing_mm == (2, 2, 2)
    assert np.array_equal(lazy.levels[0].image().data[0], VOXELS[::2, ::2, ::2])


@pytest.mark.parametrize(("name", "stays"), [("a.nii", True), ("a.nii.gz", False), ("a.nrrd", False)])
def test_a_box_of_a_file(tmp_path, name, stays):
    path = written(tmp_path, name)
    lazy = open_lazily(path)
    assert (lazy.held_bytes == 0) == stays
    part = lazy.part(BOX)
    assert np.array_equal(part.data[0], VOXELS[BOX])
    assert part.grid.index_to_world([[0, 0, 0]]) == pytest.approx(GRID.index_to_world([[1, 2, 0]]))
    assert torch.equal(lazy.image().data, wf.read_image(path).data)


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_box_of_a_bigtiff(tmp_path, byteorder):
    tifffile.imwrite(tmp_path / "a.tif", VOXELS, bigtiff=True, byteorder=byteorder, photometric="minisblack")
    tifffile.imwrite(tmp_path / "packed.tif", VOXELS, compression="zlib", photometric="minisblack")
    lazy = open_lazily(tmp_path / "a.tif", spacing_mm=2.0)
    assert lazy.held_bytes == 0
    assert np.array_equal(lazy.read(0, BOX), VOXELS[BOX])
    assert lazy.grid.spacing_mm == (2, 2, 2)
    assert open_lazily(tmp_path / "packed.tif").held_bytes == VOXELS.nbytes


def test_channels_are_chosen():
    image = held(wf.Image(torch.arange(2 * 4 * 4 * 4).reshape(2, 4, 4, 4).float(), wf.Grid.from_spacing((4, 4, 4))))
    assert float(image.with_channels(2).read(0, (slice(0, 1),) * 3)[0, 0, 0]) == 64
    with pytest.raises(InputError, match="channel 3 cannot be chosen"):
        image.with_channels(3)


def test_boxes_cover_a_grid_once():
    covered = np.zeros((5, 7, 3), int)
    for box in boxes(covered.shape, (2, 4, 3)):
        covered[box] += 1
    assert (covered == 1).all()


def test_a_level_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileError, match="lists the level 2, which does not exist"):
        open_lazily(store(tmp_path / "a.ome.zarr", announced=3))


@pytest.mark.parametrize("shards", [None, True])
def test_damage_is_told_when_it_is_met(tmp_path, shards):
    path = store(tmp_path / "a.ome.zarr", shards=shards)
    lazy = open_lazily(path)
    for chunk in (path / "0" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(chunk.read_bytes()[: chunk.stat().st_size // 2])
    with pytest.raises(FileError, match="a chunk or its metadata is damaged"):
        lazy.image()


def test_a_truncated_file_is_told(tmp_path):
    path = written(tmp_path, "a.nii")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileError, match="is truncated"):
        open_lazily(path)


def test_nothing_is_left_of_an_output_that_fails(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(omezarr, "put", full)
    with (
        pytest.raises(FileError, match="cannot be written"),
        omezarr.writing(tmp_path / "out.zarr", GRID, np.uint8, 1, force=False) as folder,
    ):
        omezarr.put(folder, 0, BOX, VOXELS)
    assert not list(tmp_path.iterdir())

"""Commands with --memory or --workers: images and fields in parts are what they are as a whole."""

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import run
from warpfactor.geometry.resample import VoxelMap
from warpfactor.registration.streaming import needed_box

pytest.importorskip("zarr", reason="zarr is not installed")
SHAPE = (20, 33, 30)


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Kernels count as compiled; see registration/test_ahead.py."""
    monkeypatch.setattr("warpfactor.registration.ahead.are_compiled", lambda: True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A smooth warp on a half grid, an affine, an image and labels as OME-Zarr."""
    folder = tmp_path_factory.mktemp("streamed")
    generator = torch.Generator().manual_seed(5)
    grid = wf.Grid.from_spacing(SHAPE, (1.0, 0.8, 0.9))
    half = grid.scaled(2.0)
    noise = torch.randn((3, *half.shape), generator=generator)
    field = wf.kernels.select().smooth_gaussian(8 * noise, (2.0, 2.0, 2.0))
    wf.write_transform(wf.Warp(field, half), folder / "warp.nii.gz")
    matrix = np.eye(4)
    matrix[:3, :3] += 0.03 * np.array([[0, 1, 0], [-1, 0, 2], [0, -2, 1]])
    matrix[:3, 3] = 1.5, -0.7, 0.4
    wf.write_transform(wf.Affine(matrix), folder / "affine.mat")
    voxels = 200 * torch.rand((18, 35, 31), generator=generator).numpy() + 300
    wf.write_image(wf.Image.from_array(voxels.astype(np.float32), 0.9), folder / "image.ome.zarr")
    labels = wf.Image(torch.from_numpy((voxels[None] // 60).astype(np.int32)), wf.Grid.from_spacing((18, 35, 31), 0.9))
    wf.io.write_labels(labels, folder / "labels.ome.zarr")
    wf.write_image(wf.Image(torch.zeros((1, *SHAPE)), grid), folder / "reference.nii")
    return folder


def chain(place):
    return "-t", place / "warp.nii.gz", "-t", place / "affine.mat", "-r", place / "reference.nii"


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.nii.gz"])
def test_apply_in_parts_is_apply(place, tmp_path, name):
    run("apply", place / "image.ome.zarr", "-o", tmp_path / "whole.nii.gz", *chain(place), "--outside", 7)
    done = run(
        "apply", place / "image.ome.zarr", "-o", tmp_path / name, *chain(place), "--outside", 7, "--memory", "4GB"
    )
    assert "limit 4GB" in done.stdout
    found, whole = wf.read_image(tmp_path / name), wf.read_image(tmp_path / "whole.nii.gz")
    assert found.grid.same_space(whole.grid)
    torch.testing.assert_close(found.data, whole.data, rtol=1e-5, atol=1e-3)


def test_blocks_on_workers_are_those_of_one_process(place, tmp_path):
    pytest.importorskip("distributed", reason="dask is not installed")
    options = ("--labels", *chain(place))
    run("apply", place / "labels.ome.zarr", "-o", tmp_path / "whole.nii.gz", *options)
    run("apply", place / "labels.ome.zarr", "-o", tmp_path / "out.ome.zarr", *options, "--workers", 1)
    assert torch.equal(wf.read_labels(tmp_path / "out.ome.zarr").data, wf.read_labels(tmp_path / "whole.nii.gz").data)


def test_fields_in_slabs_are_those_of_the_whole(place, tmp_path, monkeypatch):
    monkeypatch.setattr("warpfactor.registration.fields.MOST_VOXELS", 4 * 33 * 30)  # several slabs
    memory = ("--memory", "4GB")
    for command, options in (("compose", chain(place)), ("invert", ("-t", place / "warp.nii.gz"))):
        run(command, *options, "-o", tmp_path / f"{command}.nii.gz")
        run(command, *options, "-o", tmp_path / f"{command}_slabs.nii.gz", *memory)
        whole, found = (wf.read_transform(tmp_path / f"{command}{end}.nii.gz") for end in ("", "_slabs"))
        assert whole.grid == found.grid
        torch.testing.assert_close(found.displacement, whole.displacement, rtol=0, atol=2e-3)
    run("compose", *chain(place), "-o", tmp_path / "field.zarr", *memory)
    zarr = wf.read_transform(tmp_path / "field.zarr", single=True)
    assert zarr.displacement.dtype == torch.float32
    torch.testing.assert_close(
        zarr.displacement.double(), wf.read_transform(tmp_path / "compose.nii.gz").displacement, rtol=0, atol=1e-4
    )
    run("jacobian", *chain(place), "-o", tmp_path / "jacobian.nii.gz")
    monkeypatch.setattr("warpfactor.cli.streamed.peak_bytes", lambda: 5 * 10**9)
    done = run("jacobian", *chain(place), "-o", tmp_path / "slabs.nii.gz", *memory)
    assert "slab by slab" in done.stdout
    assert "peak memory 5.00 GB, limit 4GB: the limit was exceeded" in done.stdout
    whole, found = (wf.read_image(tmp_path / f"{name}.nii.gz") for name in ("jacobian", "slabs"))
    torch.testing.assert_close(found.data, whole.data, rtol=0, atol=1e-4)


def test_what_cannot_be_held_is_said_before_it_starts(place, tmp_path):
    done = run("apply", place / "image.ome.zarr", "-o", tmp_path / "a.nii", *chain(place), "--memory", "100MB", code=2)
    assert "A memory limit of 100 MB is too low" in done.stderr
    done = run("apply", place / "image.ome.zarr", "-o", tmp_path / "a.nii", *chain(place), "--workers", 1, code=2)
    assert "several processes can only write OME-Zarr" in done.stderr
    for command, name in (("compose", "a.nii.gz"), ("compose", "a.h5"), ("invert", "a.h5"), ("jacobian", "a.nii.gz")):
        done = run(command, *chain(place), "-o", tmp_path / name, "--memory", "100MB", code=2)
        assert "A memory limit of 100 MB is too low" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_block_outside_needs_nothing():
    near, far = wf.Grid.from_spacing((4, 4, 4)), np.eye(4)
    far[0, 3] = 100.0
    assert needed_box(VoxelMap(near, None, far), near) is None
    assert needed_box(VoxelMap(near, None, np.eye(4)), near) == (slice(0, 4),) * 3

"""A new image format is one module and one entry in the registry; images, labels and warps then use it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from geometries import GRIDS, blobs, noise, smooth_warp
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.transform import Warp
from warpfactor.io import (
    formats,
    nifti,
    read_image,
    read_labels,
    read_transform,
    simpleitk,
    write_image,
    write_labels,
    write_transform,
)
from warpfactor.io.atomic import atomic_path
from warpfactor.io.voxels import FileHeader, Volumes, VoxelSource


class Npz:
    """A toy format: NumPy archives with the voxels and their matrix."""

    FIELD_SUFFIXES = (".npz",)

    def handles(self, path: Path) -> bool:
        return path.suffix == ".npz"

    def read(self, path: Path, *, field: bool = False) -> Volumes:
        del field
        with np.load(path) as content:
            data = content["data"]
            return Volumes(data, Grid(data.shape[2:], content["matrix"], int(content["ndim"])))

    def read_header(self, path: Path) -> FileHeader:
        with np.load(path) as content:
            return FileHeader(len(content["data"]), content["data"].dtype)

    def write(self, source: VoxelSource, path: Path, *, force: bool) -> None:
        data = [
            [np.concatenate(list(source.slabs(volume, channel))) for channel in range(source.channels)]
            for volume in range(source.volumes)
        ]
        with atomic_path(path, force=force) as temporary:
            array = np.asarray(data, source.dtype)
            np.savez(temporary, data=array, matrix=source.grid.matrix, ndim=source.grid.ndim)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", (Npz(), *formats.FORMATS))


@pytest.mark.parametrize("name", ["oblique", "planar"])
def test_a_new_format_is_one_module_and_one_entry(name: str, tmp_path: Path, generator: torch.Generator) -> None:
    grid = GRIDS[name]
    image, labels, warp = noise(grid, generator, channels=2), blobs(grid), smooth_warp(grid)
    write_image(image, tmp_path / "image.npz")
    assert torch.equal(read_image(tmp_path / "image.npz").data, image.data)
    write_labels(labels, tmp_path / "small.npz", like=_small(tmp_path / "like.npz"))
    assert np.load(tmp_path / "small.npz")["data"].dtype == np.int16
    assert torch.equal(read_labels(tmp_path / "small.npz").data, labels.data)
    write_transform(warp, tmp_path / "warp.npz")
    again = read_transform(tmp_path / "warp.npz")
    assert isinstance(again, Warp) and again.grid == grid
    torch.testing.assert_close(again.displacement.float(), warp.displacement, rtol=0, atol=5e-7)


def _small(path: Path) -> Path:
    np.savez(path, data=np.zeros((1, 1, 2, 3, 4), np.int16), matrix=np.eye(4), ndim=3)
    return path


def test_names_decide(tmp_path: Path) -> None:
    (tmp_path / "scan.nii.gz").mkdir()
    cases = {"a.nii": nifti, "B.NII.GZ": nifti, "a.nrrd": simpleitk, "a": simpleitk, "scan.nii.gz": simpleitk}
    for name, expected in cases.items():
        assert formats.find_format(tmp_path / name) is expected

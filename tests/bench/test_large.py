"""`bench.large`: a phantom on disk whose truth holds, also where it was painted at half its resolution."""

import json

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.bench import large

pytest.importorskip("zarr", reason="zarr is not installed")
SIZE = 64


@pytest.mark.parametrize("painted", [SIZE, SIZE // 2])
def test_the_truth_of_a_phantom_on_disk(tmp_path, monkeypatch, capsys, painted):
    monkeypatch.setattr(large, "PAINTED", painted)
    large.main(["phantom", str(SIZE), str(tmp_path)])
    truth = np.load(tmp_path / "truth.npy")
    assert truth.shape == (4, 8, 8, 8)
    fixed, moving = (wf.read_image(tmp_path / f"{side}.ome.zarr") for side in ("fixed", "moving"))
    index = large.STRIDE * np.argwhere(truth[3] > 0)
    there = index + truth[:3].reshape(3, -1).T[(truth[3] > 0).ravel()]
    values = [sampled(image, at) for image, at in ((fixed, index), (moving, there), (moving, index))]
    wrong, before = ((value - values[0]).abs().mean() for value in values[1:])
    assert wrong < 0.6 * before
    wf.io.write_labels(wf.read_labels(tmp_path / "labels.ome.zarr"), tmp_path / "same.ome.zarr")
    large.main(["labels", str(tmp_path), str(tmp_path / "same.ome.zarr")])
    assert 0.3 < json.loads(capsys.readouterr().out)["right"] < 1


def test_an_image_and_its_labels_are_enlarged(tmp_path, capsys):
    made = wf.phantom.phantom((20, 24, 16), seed=2)
    grid = wf.Grid.from_spacing((20, 24, 16), (1.0, 2.0, 1.5))
    image, labels = (wf.Image.from_array(each.numpy(), grid=grid) for each in (made.fixed, made.fixed_labels))
    wf.write_image(image, tmp_path / "image.nii.gz")
    wf.io.write_labels(labels, tmp_path / "labels.nii.gz")
    large.main(["enlarge", str(tmp_path / "image.nii.gz"), str(SIZE), str(tmp_path / "image.ome.zarr")])
    paths = str(tmp_path / "labels.nii.gz"), str(tmp_path / "labels.ome.zarr")
    large.main(["enlarge", paths[0], str(SIZE), paths[1], "--labels"])
    found = wf.read_image(tmp_path / "image.ome.zarr")
    assert found.grid.shape == (SIZE,) * 3
    assert found.grid.spacing_mm == pytest.approx([20 / SIZE, 2 * 24 / SIZE, 1.5 * 16 / SIZE])
    expected = torch.nn.functional.interpolate(made.fixed[None, None], (SIZE,) * 3, mode="trilinear")[0, 0]
    low, high = float(made.fixed.min()), float(made.fixed.max())
    assert float((found.data[0] / large.SCALE * (high - low) + low - expected).abs().max()) < 1e-4 * (high - low)
    large.main(["dice", *paths])
    said = json.loads(capsys.readouterr().out)
    assert (said["right"], said["dice"]) == (1, 1)


def sampled(image, index):
    """Values at (N, 3) positions in voxels."""
    place = 2 * torch.from_numpy(np.asarray(index, np.float32)[:, ::-1].copy()) / (SIZE - 1) - 1
    found = torch.nn.functional.grid_sample(image.data[None], place[None, None, None], align_corners=True)
    return found.ravel()

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


def sampled(image, index):
    """Values at (N, 3) positions in voxels."""
    place = 2 * torch.from_numpy(np.asarray(index, np.float32)[:, ::-1].copy()) / (SIZE - 1) - 1
    found = torch.nn.functional.grid_sample(image.data[None], place[None, None, None], align_corners=True)
    return found.ravel()

"""The comparison of optimizers in plain PyTorch runs, and its smoothness term is what it says."""

import pytest
import torch

import warpfactor as wf
from warpfactor.bench.score import plain_torch


def test_every_contender_gets_a_row(monkeypatch):
    made = wf.phantom.phantom((16, 18, 16), displacement_vox=1.0)
    monkeypatch.setattr(plain_torch, "LEVELS", ((2, 2), (1, 2)))
    pair = plain_torch.PlainPair(made.fixed, made.moving, made.fixed_labels, made.moving_labels)
    rows = list(plain_torch.compare(pair))
    assert [row["optimizer"] for row in rows] == [contender.name for contender in plain_torch.CONTENDERS]
    assert {row["kept per voxel"] for row in rows if row["optimizer"].startswith("FactoredLM")} == {0}
    assert {row["kept per voxel"] for row in rows if row["optimizer"].startswith("Adam")} == {6}
    assert all(0 < row["Dice"] < 1 for row in rows)


def test_roughness_is_in_voxels():
    u = torch.zeros(1, 5, 6, 7, 3)
    u[..., 0] = torch.arange(7) * 2 / 6  # one voxel more from voxel to voxel along x
    assert float(plain_torch.roughness(u)) == pytest.approx(1 / 3)

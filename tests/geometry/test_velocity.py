"""Velocity fields: exponential and logarithm undo each other, powers add, means are half-way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.geometry.itk import sitk
from warpfactor.geometry.velocity import doublings, exponential, exponential_on_device, logarithm
from warpfactor.kernels import reference

OPS = wf.kernels.select("cpu")
SHAPE = (18, 20, 22)
GRID = wf.Grid.from_spacing(SHAPE, (2.0, 1.0, 1.5))


def smooth_velocity(seed: int = 0, size: float = 1.5) -> wf.Velocity:
    field = torch.randn((3, *SHAPE), generator=torch.Generator().manual_seed(seed))
    OPS.smooth_gaussian(field, (4.0, 4.0, 4.0), boundary="zero")
    return wf.Velocity(field * (size / float(field.abs().max())), GRID)


def inner(field: torch.Tensor) -> torch.Tensor:
    return field[:, 4:-4, 4:-4, 4:-4]


def test_the_flow_of_a_rotation_is_a_rotation():
    angle, n = 0.5, 21
    centre = (n - 1) / 2
    y, x = torch.meshgrid(torch.arange(n) - centre, torch.arange(n) - centre, indexing="ij")
    velocity = torch.stack([torch.zeros_like(y), -angle * x, angle * y])[:, None]
    found = exponential(velocity, OPS)
    c, s = math.cos(angle), math.sin(angle)
    expected = torch.stack([torch.zeros_like(y), c * y - s * x - y, s * y + c * x - x])[:, None]
    around = (y.square() + x.square() < 36).expand(3, 1, n, n)
    torch.testing.assert_close(found[around], expected[around], atol=2e-3, rtol=0)


def test_powers_add_and_the_inverse_is_the_negative():
    velocity = smooth_velocity()
    whole, half, back = (velocity.warp(t).displacement for t in (1.0, 0.5, -1.0))
    torch.testing.assert_close(inner(OPS.compose(half, half)), inner(whole), atol=1e-5, rtol=0)
    assert float(inner(OPS.compose(back, whole)).abs().max()) < 0.02
    torch.testing.assert_close(velocity.inverse().warp().displacement, back)
    torch.testing.assert_close(inner(wf.power(velocity.warp(), 0.5).displacement), inner(half), atol=0.03, rtol=0)


def test_the_logarithm_undoes_the_exponential():
    velocity = smooth_velocity(1)
    found = logarithm(velocity.warp().displacement, OPS)
    torch.testing.assert_close(inner(found), inner(velocity.field), atol=0.05, rtol=0)
    again = exponential(found, OPS)
    assert float((again - velocity.warp().displacement).norm(dim=0).mean()) < 0.02


def test_the_mean_of_a_warp_and_its_inverse_is_no_warp():
    velocity = smooth_velocity(2)
    mean = wf.mean_warp([velocity.warp(), velocity.warp(-1.0)])
    assert float(inner(mean.displacement).abs().max()) < 0.03
    weighted = wf.mean_velocity([velocity, velocity.inverse()], weights=(3.0, 1.0))
    torch.testing.assert_close(weighted.field, velocity.field / 2)


def test_the_log_jacobian_of_a_growing_flow_is_its_divergence():
    n, rate = 17, 0.1
    line = rate * (torch.arange(n, dtype=torch.float32) - 8)
    field = torch.stack(torch.meshgrid(line, line, line, indexing="ij"))
    velocity = wf.Velocity(field, wf.Grid.from_spacing((n, n, n)))
    middle = velocity.log_jacobian().data[0, 4:-4, 4:-4, 4:-4]
    torch.testing.assert_close(middle, torch.full_like(middle, 3 * rate), atol=2e-3, rtol=0)


def test_files_hold_millimetres_that_itk_reads(tmp_path):
    velocity = smooth_velocity(3)
    wf.write_velocity(velocity, tmp_path / "velocity.nii.gz")
    again = wf.read_velocity(tmp_path / "velocity.nii.gz")
    torch.testing.assert_close(again.field, velocity.field, atol=1e-5, rtol=0)
    vectors = sitk.GetArrayFromImage(sitk.ReadImage(str(tmp_path / "velocity.nii.gz")))
    expected = velocity.field.permute(1, 2, 3, 0).flip(-1).numpy() * np.array([1.5, 1.0, 2.0])
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    with pytest.raises(wf.FileError, match="vector image"):
        wf.write_velocity(velocity, tmp_path / "velocity.mat")
    wf.write_transform(wf.Affine(), tmp_path / "affine.mat")
    with pytest.raises(wf.FileError, match="vector image"):
        wf.read_velocity(tmp_path / "affine.mat")


def test_what_has_no_mean_is_said():
    velocity = smooth_velocity()
    elsewhere = wf.Velocity(velocity.field, wf.Grid.from_spacing(SHAPE))
    with pytest.raises(wf.InputError, match="at least one velocity field"):
        wf.mean_velocity([])
    with pytest.raises(wf.InputError, match="Velocity 2 lies on another grid"):
        wf.mean_velocity([velocity, elsewhere])
    with pytest.raises(wf.InputError, match="one positive weight for each"):
        wf.mean_velocity([velocity], weights=(0.0,))
    with pytest.raises(wf.InputError, match="has shape"):
        wf.Velocity(velocity.field[:, 1:], GRID)


@pytest.mark.parametrize("size", [0.0, 0.3, 0.5, 1.5, 7.0])
def test_a_device_finds_how_often_to_double(size):
    velocity = smooth_velocity(3, size).field
    wanted = doublings(float(velocity.abs().max()))
    assert wanted == (max(0, math.ceil(math.log2(2 * size))) if size else 0)
    for most in (wanted, wanted + 2):
        assert torch.equal(exponential_on_device(velocity, reference, most), exponential(velocity, reference))

"""Scans of one person: no change where there is none, known shrinkage found, the negative when scans are exchanged."""

import json

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import run
from warpfactor.errors import InputError
from warpfactor.followup.space import mean_pose
from warpfactor.followup.structures import displacement_of, structure_means
from warpfactor.geometry.grid import Grid

SHAPE, RADIUS = (44, 46, 45), 11.0
QUICK = {"deformable.iterations": (8, 8, 6)}


def scan(shrink=0.0, angle=0.0, shift=0.0, noise=0.0, seed=0):
    """A textured ball, turned, shifted, and with a smaller ball in its middle that lost a share of its volume.

    Points move by k d inside the smaller ball and by k (r / |d|)^3 d outside, which leaves volumes there as they are.
    Intensities are a formula of the moved points, so that no interpolation blurs one of the scans.
    """
    turn = np.eye(3)
    turn[1:, 1:] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    away = np.einsum("ab,bzyx->azyx", turn, INDEX) + shift
    distance = np.maximum(np.sqrt((away**2).sum(0)), 1e-9)
    k = ((1 - shrink) ** (-1 / 3) - 1) * np.where(distance < RADIUS, 1.0, (RADIUS / distance) ** 3)
    texture = sum(np.cos(np.tensordot(wave, away * (1 + k), 1) + phase) for *wave, phase in WAVES)
    shown = (1 + 0.05 * texture) / (1 + np.exp((np.sqrt(((away * (1 + k)) ** 2).sum(0)) - 18) / 0.8))
    return (shown + noise * np.random.default_rng(seed).normal(size=SHAPE)).astype(np.float32)


def waves(count=40):
    """(count, 4): wave vectors with lengths of 7 to 20 voxels, and phases."""
    rng = np.random.default_rng(3)
    direction = rng.normal(size=(count, 3))
    rates = 2 * np.pi / rng.uniform(7, 20, count) / np.linalg.norm(direction, axis=1)
    return np.c_[direction * rates[:, None], rng.uniform(0, 2 * np.pi, count)]


INDEX = np.stack(np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in SHAPE), indexing="ij"))
WAVES = waves()


def ball():
    return (np.sqrt((INDEX**2).sum(0)) < RADIUS).astype(np.int32)


def test_a_person_scanned_twice_without_change_has_none():
    found = wf.longitudinal([scan(noise=0.01, seed=1), scan(noise=0.01, seed=2, angle=0.05, shift=0.6)])
    assert found.changes[0].mean_absolute_log < 0.01
    assert abs(found.changes[0].whole.percent) < 0.2


def test_a_known_shrinkage_is_found():
    percents = []
    for seed in (1, 5):
        scans = [scan(noise=0.01, seed=seed), scan(0.02, noise=0.01, seed=seed + 1, angle=0.05, shift=0.6)]
        found = wf.longitudinal(scans, labels=ball())
        percents.append(found.changes[0].labels[1].percent)
    assert percents == pytest.approx([-2.0, -2.0], abs=0.3)  # noise moves either by a tenth or two


def test_what_smooth_warps_take_off_the_change_of_a_structure_is_made_up_for():
    scans = [scan(noise=0.01, seed=1), scan(0.1, noise=0.01, seed=2)]
    found = wf.longitudinal(scans, labels=ball(), overrides={**QUICK, "deformable.sigma_warp": 1.0})
    change = found.changes[0].labels[1]
    found_so_far = 100 * np.expm1(change.mean_log)
    assert -9.2 < found_so_far < -8  # a tenth is lost
    assert abs(change.percent + 10) < 0.7 * abs(found_so_far + 10)
    assert change.percent == pytest.approx(100 * np.expm1(change.mean_log + change.lost))
    still = wf.longitudinal([scans[0], scans[0]], labels=ball(), overrides=QUICK)
    assert abs(still.changes[0].labels[1].percent) < 0.01  # nothing is added to nothing


def test_a_displacement_changes_volumes_as_it_was_asked_to():
    grid = Grid.from_spacing(SHAPE, (2.0, 1.0, 1.0))
    wanted = -0.03 * torch.from_numpy(ball())
    made = wf.kernels.select("cpu", "reference").jacobian_determinant(displacement_of(wanted, grid)).log_()
    means = structure_means(made, torch.from_numpy(ball()))
    assert means[1] == pytest.approx(-0.03 - float(wanted.mean()), abs=5e-4)
    outside = np.sqrt((INDEX**2).sum(0)) > RADIUS + 3
    assert float((made + wanted.mean())[torch.from_numpy(outside)].abs().max()) < 2e-3


def test_exchanged_scans_have_the_negative_of_the_map():
    scans = [scan(noise=0.01, seed=1), scan(0.05, noise=0.01, seed=2, angle=0.05)]
    there, back = (wf.longitudinal(order, overrides=QUICK) for order in (scans, scans[::-1]))
    first, second = (each.changes[0].log_jacobian for each in (there, back))
    assert first.grid.same_space(second.grid)
    assert first.data.abs().max() > 0.01
    torch.testing.assert_close(first.data, -second.data, rtol=0, atol=1e-4)
    torch.testing.assert_close(there.mean.data, back.mean.data, rtol=0, atol=1e-3)


def test_three_scans_have_a_mean_space_and_changes_since_the_first():
    scans = [scan(), scan(0.1, angle=0.04), scan(0.2, angle=-0.04, shift=0.5)]
    found = wf.longitudinal(scans, labels=ball())
    changes = [change.labels[1].percent for change in found.changes]
    assert -13 < changes[0] < -6
    assert -25 < changes[1] < -14
    assert [image.grid for image in found.scans] == [found.mean.grid] * 3
    apart = [float((image.data - found.mean.data).abs().mean()) for image in found.scans]
    assert max(apart) < 0.5 * float(np.abs(scans[0] - scans[2]).mean())


def test_the_mean_pose_lies_between():
    grid = Grid.from_spacing((20, 20, 20), 1.0)
    turns = []
    for angle in (0.0, 0.2):
        matrix = np.eye(4)
        matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        turns.append(matrix)
    half = mean_pose(turns, grid)
    assert np.arctan2(half[1, 0], half[0, 0]) == pytest.approx(0.1)
    np.testing.assert_allclose(mean_pose([np.eye(4)] * 3, grid), np.eye(4), atol=1e-12)


def test_the_command_writes_a_whole_folder(tmp_path):
    for number, image in enumerate((scan(), scan(0.1)), start=1):
        wf.write_image(wf.Image.from_array(image), tmp_path / f"scan{number}.nii.gz")
    wf.write_image(wf.Image(torch.from_numpy(ball())[None], Grid.from_spacing(SHAPE, 1.0)), tmp_path / "ball.nii.gz")
    files = [tmp_path / f"scan{number}.nii.gz" for number in (1, 2)]
    options = [part for name, value in QUICK.items() for part in ("--set", f"{name}={','.join(map(str, value))}")]
    out = tmp_path / "out"
    done = run("longitudinal", *files, "-o", out, "--mask", tmp_path / "ball.nii.gz", *options)
    assert {path.name for path in out.iterdir()} == {
        *("mean.nii.gz", "labels.nii.gz", "scan1.nii.gz", "scan2.nii.gz", "scan1Warp.nii.gz", "scan2Warp.nii.gz"),
        *("change2.nii.gz", "changes.csv", "report.html", "longitudinal.json"),
    }
    saved = json.loads((out / "longitudinal.json").read_text())
    percent = saved["changes"][0]["labels"]["1"]["percent"]
    assert percent < -4
    assert f"label 1: {percent:+.2f} %" in done.stdout
    assert (out / "changes.csv").read_text().splitlines()[2].startswith("scan2.nii.gz,1,")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert f"{percent:+.2f}" in page
    assert "data:image/png" in page
    again = wf.read_transform(out / "scan2Warp.nii.gz").resample(
        wf.read_image(files[1]), wf.read_image(out / "mean.nii.gz").grid
    )
    inner = (slice(None), *(slice(8, -8),) * 3)
    torch.testing.assert_close(again.data[inner], wf.read_image(out / "scan2.nii.gz").data[inner], rtol=0, atol=1e-3)


def test_what_is_wrong_is_named(tmp_path):
    image = scan()
    with pytest.raises(InputError, match="At least two scans of one person"):
        wf.longitudinal([image])
    with pytest.raises(InputError, match="2 scans and 1 masks"):
        wf.longitudinal([image, image], masks=[image])
    with pytest.raises(InputError, match="labels: is not a label map"):
        wf.longitudinal([image, image], labels=np.zeros(SHAPE))
    with pytest.raises(InputError, match="'fast' treats the two scans differently"):
        wf.longitudinal([image, scan(0.1)], recipe="fast")
    wf.write_image(wf.Image.from_array(image), tmp_path / "a.nii.gz")
    out = tmp_path / "out"
    failed = run("longitudinal", tmp_path / "a.nii.gz", "-o", out, code=2)
    assert "At least two scans of one person" in failed.stderr
    assert not out.exists()

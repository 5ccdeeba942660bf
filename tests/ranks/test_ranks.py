"""Ranks share a registration: the bits of one process, refusals, and what happens when one is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.phantom import phantom
from warpfactor.ranks.exchange import UNIT, cuts
from warpfactor.ranks.lent import reached

SHAPE = (44, 30, 28)  # three slabs, and with four ranks one that has none
QUICK = {"deformable.meant_for": 0}


@pytest.fixture(scope="module")
def images():
    return phantom(SHAPE)


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request):
    with wf.Ranks.local(request.param, threads=1) as made:
        yield made


def masks(images):
    """Masks that leave out a corner of each image."""
    found = []
    corners = (slice(0, 20), slice(0, 12)), (slice(30, 44), slice(20, 30))
    for image, corner in zip((images.fixed, images.moving), corners, strict=True):
        mask = np.ones(image.grid.shape, np.uint8)
        mask[corner] = 0
        found.append(mask)
    return {"fixed_mask": found[0], "moving_mask": found[1]}


def assert_same(found, alone):
    """Two registrations have the same bits: iterations, transforms, image and figures."""
    for one, other in ((found.warp, alone.warp), (found.inverse_warp, alone.inverse_warp)):
        assert np.array_equal(*(part.displacement.numpy().view(np.int32) for part in (one, other)))
    assert np.array_equal(found.affine.matrix, alone.affine.matrix)
    assert torch.equal(found.warped.data, alone.warped.data)
    assert found.figures == alone.figures
    for one, other in zip(found.history, alone.history, strict=True):
        assert [(e.level, e.cost, e.damping, e.accepted, e.step_vox) for e in one.history] == [
            (e.level, e.cost, e.damping, e.accepted, e.step_vox) for e in other.history
        ]
        assert (one.ending, one.cost_before, one.cost_after) == (other.ending, other.cost_before, other.cost_after)


@pytest.mark.parametrize("recipe", ["default", "lung", "multimodal"])
def test_the_bits_of_one_process(images, ranks, recipe):
    options = {"recipe": recipe, "overrides": QUICK if recipe == "default" else {}, **masks(images)}
    alone = wf.register(images.fixed, images.moving, **options)
    found = wf.register(images.fixed, images.moving, ranks=ranks, **options)
    assert len({event.level for event in found.history[-1].history}) > 1
    assert found.run.ranks == ranks.count
    assert_same(found, alone)


def test_a_run_that_is_stopped(images, ranks):
    def run(**given):
        stop, seen = threading.Event(), []

        def tell(event):
            seen.append(event)
            if sum(each.stage == "deformable" for each in seen) == 5:
                stop.set()

        return wf.register(images.fixed, images.moving, overrides=QUICK, progress=tell, stop=stop, **given)

    found = run(ranks=ranks)
    assert found.interrupted
    assert_same(found, run())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"recipe": "rigid"}, "no deformable stage"),
        ({"recipe": "symmetric"}, "moves both images"),
        ({"overrides": {"deformable.metric": "mi"}}, "'mi' is not a sum over planes"),
        ({"overrides": {"deformable.optimizer": "adam"}}, "'adam' is not made for slabs"),
        ({"terms": [wf.Bending()]}, "look at the whole image"),
        ({"backend": "reference"}, "backend 'numba'"),
        ({"ranks": 0}, "0 ranks cannot share"),
    ],
)
def test_refusals(images, options, sentence):
    with pytest.raises(wf.InputError, match=sentence):
        wf.register(images.fixed, images.moving, **{"ranks": 2, **options})


def test_slices_are_refused():
    made = phantom((1, 40, 40))
    with pytest.raises(wf.InputError, match="one slice has no planes"):
        wf.register(made.fixed, made.moving, ranks=2)


def children(pid):
    """Process numbers of a process's ranks."""
    tasks = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in tasks.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_a_killed_rank_ends_the_command(images, tmp_path):
    for name in ("fixed", "moving"):
        wf.write_image(getattr(images, name), tmp_path / f"{name}.nii.gz")
    command = ["register", "fixed.nii.gz", "moving.nii.gz", "-o", "out", "--ranks", "3", "--threads", "1", "--json"]
    run = subprocess.Popen(
        [sys.executable, "-m", "warpfactor", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stdout:
        if json.loads(line).get("stage") == "deformable":
            break
    began = time.monotonic()
    os.kill(children(run.pid)[1], signal.SIGKILL)
    _, errors = run.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert run.returncode != 0
    assert "Rank 2 of 3 was ended by SIGKILL before the registration did; nothing was written." in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.nii.gz", "moving.nii.gz"]


def test_torchrun(images, tmp_path):
    for name in ("fixed", "moving"):
        wf.write_image(getattr(images, name), tmp_path / f"{name}.nii.gz")
    command = ["register", "fixed.nii.gz", "moving.nii.gz", "-o", "out", "--recipe", "fast", "--no-report", "-q"]
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "warpfactor"]
    subprocess.run(
        [sys.executable, "-m", *launcher, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
    )
    found = wf.read_result(tmp_path / "out")
    alone = wf.register(tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz", recipe="fast")
    alone.save(tmp_path / "alone", report=False)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["ranks"] == 2
    again = wf.read_result(tmp_path / "alone")
    assert torch.equal(found.transform.parts[0].displacement, again.transform.parts[0].displacement)


def test_dask_places_ranks(images):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
        wf.Ranks.dask(client, threads=1) as ranks,
    ):
        found = wf.register(images.fixed, images.moving, recipe="fast", ranks=ranks)
    assert_same(found, wf.register(images.fixed, images.moving, recipe="fast"))


@pytest.mark.parametrize("depth", [1, 15, 40, 64, 100, 2048])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_slabs_cover_the_planes(depth, size):
    found = cuts(depth, size)
    assert [n for a, b in found for n in range(a, b)] == list(range(depth))
    assert all(a % UNIT == 0 or a == depth for a, _ in found)
    if depth == 2048:
        assert {b - a for a, b in found} == {depth // size}


def test_the_planes_a_slab_is_mapped_to(generator):
    field = 3 * torch.randn((3, 20, 9, 8), generator=generator)
    matrix = torch.tensor([[0.8, 0.2, -0.3, 4.0], [0, 1, 0, 0], [0, 0, 1, 0]]).double()
    first, last = reached(field, (5, 9), matrix, 40)
    z, y, x = torch.meshgrid(torch.arange(5, 9), torch.arange(9), torch.arange(8), indexing="ij")
    points = torch.stack([z, y, x]) + field[:, 5:9].double()
    p = torch.tensordot(matrix[0, :3], points, 1) + matrix[0, 3]
    low, high = p.clamp(0, 39).floor().min(), p.clamp(0, 39).floor().max() + 1
    assert first <= low and last > min(high, 39)
    assert last - first < 40

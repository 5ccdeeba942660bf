"""Ranks on this machine, by torchrun and on Dask workers; and what happens when one is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import warpfactor as wf
from equality import assert_same
from warpfactor.phantom import phantom


@pytest.fixture(scope="module")
def images():
    return phantom((36, 24, 24))


def write(images, folder):
    """The images as files."""
    for name in ("fixed", "moving"):
        wf.write_image(wf.Image.from_array(getattr(images, name)), folder / f"{name}.nii.gz")


def test_a_killed_rank_ends_the_registration(images):
    killed = []

    def tell(event):
        if event.stage == "deformable" and not killed:
            ranks._processes[0].kill()
            killed.append(time.monotonic())

    with wf.Ranks.local(2, threads=1) as ranks:
        with pytest.raises(wf.RankError, match="Rank 1 of 2 was ended by SIGKILL before the registration did; nothing"):
            wf.register(images.fixed, images.moving, ranks=ranks, progress=tell)
        assert time.monotonic() - killed[0] < 30
        with pytest.raises(wf.RankError, match="Start it again"):
            wf.register(images.fixed, images.moving, ranks=ranks)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_a_killed_rank_ends_the_command(images, tmp_path):
    write(images, tmp_path)
    command = ["register", "fixed.nii.gz", "moving.nii.gz", "-o", "out", "--ranks", "2", "--threads", "1", "--json"]
    run = subprocess.Popen(
        [sys.executable, "-u", "-m", "warpfactor", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert json.loads(run.stdout.readline())["event"] == "iteration"
    began = time.monotonic()
    (rank,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    os.kill(int(rank), signal.SIGKILL)
    _, errors = run.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert run.returncode == 2
    assert "Rank 1 of 2 was ended by SIGKILL before the registration did; nothing was written." in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.nii.gz", "moving.nii.gz"]


def test_torchrun(images, tmp_path):
    write(images, tmp_path)
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

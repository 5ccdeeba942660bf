"""A small pair of images as files, with labels, masks, points and landmarks, and its registration, made once."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import run
from small import GRID, QUICK_OPTIONS, pair, write_pair
from warpfactor.geometry.itk import sitk

NAMES = [f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz"]
RAS = np.array([-1.0, -1.0, 1.0])


def write_landmarks(path, fixed, moving, names=NAMES):
    np.savetxt(path, np.hstack([fixed, moving]), delimiter=",", header=",".join(names), comments="")
    return path


def _pad(path):
    """Add two slices to an image, so that the moving grid differs from the fixed grid."""
    image = wf.read_image(path) if path.name == "moving.nii.gz" else wf.read_labels(path)
    data = torch.cat([image.data, image.data[:, -2:]], dim=1)
    wf.write_image(wf.Image(data, wf.Grid((GRID.shape[0] + 2, *GRID.shape[1:]), GRID.matrix)), path, force=True)


@pytest.fixture(scope="session")
def points():
    """Points of the phantom in fixed space, and where its true warp takes them."""
    truth = pair().displacement
    index = torch.tensor([[8, 9, 10], [14, 12, 11], [12, 13, 9], [9, 15, 14]])
    moved = index + torch.stack([truth[:, z, y, x] for z, y, x in index.tolist()])
    return tuple(GRID.index_to_world(part.numpy()) for part in (index, moved))


@pytest.fixture(scope="session")
def files(tmp_path_factory, points):
    """The folder of input files; the images have different grids."""
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    wf.write_image(wf.read_labels(folder / "mask.nii.gz"), folder / "moving_mask.nii.gz")
    for name in ("moving", "moving_labels", "moving_mask"):
        _pad(folder / f"{name}.nii.gz")
    labels = wf.read_labels(folder / "moving_labels.nii.gz")
    sitk.WriteImage(sitk.Cast(labels.to_sitk(), sitk.sitkUInt16), str(folder / "short_labels.nii.gz"))
    write_landmarks(folder / "landmarks.csv", *points)
    write_landmarks(folder / "ras.csv", *(side * RAS for side in points))
    for number, side in enumerate(("fixed", "moving")):
        wf.io.write_points(wf.io.make_table(points[number]), points[number], folder / f"{side}_points.csv")
    return folder


@pytest.fixture(scope="session")
def images(files):
    """The arguments FIXED and MOVING."""
    return files / "fixed.nii.gz", files / "moving.nii.gz"


@pytest.fixture(scope="session")
def registered(files, images, tmp_path_factory):
    """A registration with labels, landmarks and a report: its folder and what the command printed."""
    folder = tmp_path_factory.mktemp("results") / "out"
    labels = ("--moving-labels", files / "short_labels.nii.gz", "--labels", files / "fixed_labels.nii.gz")
    done = run("register", *images, "-o", folder, *QUICK_OPTIONS, *labels, "--landmarks", files / "landmarks.csv")
    return SimpleNamespace(folder=folder, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="session")
def result(registered):
    """The folder of that registration."""
    return registered.folder

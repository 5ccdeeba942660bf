"""Segmentation by atlases: what the fusions do, and the command from table to labels and volumes."""

import json

import pytest
import torch

import warpfactor as wf
from commands import run
from people import write_people
from serial import use_serial
from small import GRID, QUICK_OPTIONS, SHAPE
from warpfactor.cohort.atlas.fusion import FUSIONS, fuse, joint, label_probability, local_correlation, vote
from warpfactor.kernels import select

OPS = select("cpu")


def maps(*values):
    """Label maps of one voxel each."""
    return torch.tensor(values, dtype=torch.int32).reshape(len(values), 1, 1, 1)


def test_the_label_with_the_most_votes_wins_and_the_smallest_of_equals():
    assert vote(maps(3, 5, 5)).labels.item() == 5
    assert vote(maps(3, 5, 5)).probability.item() == pytest.approx(2 / 3)
    assert vote(maps(7, 5)).labels.item() == 5
    weights = torch.tensor([0.7, 0.2, 0.1]).reshape(3, 1, 1, 1)
    found = vote(maps(3, 5, 5), weights)
    assert (found.labels.item(), found.probability.item()) == (3, pytest.approx(0.7))
    assert label_probability(maps(3, 5, 5), weights, 5).item() == pytest.approx(0.3)


def test_slabs_do_not_matter(monkeypatch, generator):
    shape = (7, 9, 8)
    labels = torch.randint(0, 4, (3, *shape), generator=generator, dtype=torch.int32)
    images = torch.rand((4, *shape), generator=generator)
    whole = [fuse(images[0], images[1:], labels, rule, OPS)[0] for rule in FUSIONS]
    monkeypatch.setattr("warpfactor.cohort.atlas.fusion._SLAB_BYTES", 1)
    for rule, before in zip(FUSIONS, whole, strict=True):
        after = fuse(images[0], images[1:], labels, rule, OPS)[0]
        assert torch.equal(before.labels, after.labels)
        assert torch.allclose(before.probability, after.probability, atol=1e-5)


def test_correlation_sees_through_contrast_and_brightness(generator):
    image = torch.rand(SHAPE, generator=generator)
    inside = (slice(3, -3),) * 3
    assert local_correlation(image, 3 * image + 5, OPS)[inside].min() > 0.95
    assert local_correlation(image, -image, OPS)[inside].max() < -0.95
    assert local_correlation(image, torch.ones(SHAPE), OPS).abs().max() == 0


def test_an_atlas_that_fits_outvotes_two_that_do_not(generator):
    target = OPS.smooth_gaussian(torch.rand((1, *SHAPE), generator=generator), (1.0,) * 3)[0]
    wrong = OPS.smooth_gaussian(torch.rand((2, *SHAPE), generator=generator), (1.0,) * 3)
    images = torch.stack([target + 0.001, *wrong])
    labels = torch.stack([torch.full(SHAPE, n, dtype=torch.int32) for n in (1, 2, 2)])
    assert (fuse(target, images, labels, "weighted", OPS)[0].labels == 1).float().mean() > 0.98
    assert (fuse(target, images, labels, "majority", OPS)[0].labels == 2).all()
    counts = joint(target, images, OPS).mean((1, 2, 3))
    assert counts[0] > counts[1] + 0.03 and counts[0] > counts[2] + 0.03


def test_copies_of_one_error_count_once_in_joint_fusion(generator):
    target, error, other = (
        OPS.smooth_gaussian(torch.rand((1, *SHAPE), generator=generator), (1.0,) * 3)[0] for _ in range(3)
    )
    images = torch.stack([target + error, target + error, target + other])
    weights = joint(target, images, OPS).mean((1, 2, 3))
    assert weights.sum() == pytest.approx(1, abs=1e-3)
    assert weights[2] > weights[0] + 0.02 and weights[2] > weights[1] + 0.02


@pytest.fixture(scope="module")
def atlases(tmp_path_factory):
    """A folder with an image and a table of three atlases."""
    pytest.importorskip("distributed", reason="the extra `cohort` is not installed")
    folder = write_people(tmp_path_factory.mktemp("atlases"), 3)
    lines = [f"a{k},sub{k}.nii.gz,sub{k}_labels.nii.gz" for k in range(3)]
    (folder / "atlases.csv").write_text("\n".join(["name,image,labels", *lines]))
    return folder


def test_the_command_writes_labels_probabilities_and_volumes(atlases, tmp_path, monkeypatch):
    engine = use_serial(monkeypatch)
    monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
    image, out = atlases / "template.nii.gz", tmp_path / "out"
    line = ("segment", image, "--atlases", atlases / "atlases.csv", "-o", out, *QUICK_OPTIONS)
    assert "labels from 3 atlases, weighted fusion" in run(*line, "--probabilities").stdout
    truth, found = wf.read_labels(atlases / "template_labels.nii.gz"), wf.read_labels(out / "labels.nii.gz")
    fused = wf.measure.dice_figures(truth.data[0], found.data[0]).mean
    alone = [
        wf.measure.dice_figures(truth.data[0], wf.read_labels(out / "atlases" / name / "warped_labels.nii.gz").data[0])
        for name in ("a0", "a1", "a2")
    ]
    assert fused > max(each.mean for each in alone)
    entries = json.loads((out / "segmentation.json").read_text())
    voxels = {int(v): int((found.data == v).sum()) for v in found.data.unique() if v}
    assert entries["volumes_mm3"] == pytest.approx({str(v): n * 1.5**3 for v, n in voxels.items()})
    shares = {v: wf.read_image(out / "probabilities" / f"{v}.nii.gz").data for v in voxels}
    chosen = wf.read_image(out / "probability.nii.gz").data
    for label, share in shares.items():
        assert torch.allclose(share[found.data == label], chosen[found.data == label], atol=1e-5)
    assert found.grid.same_space(GRID) and (out / "atlases" / "summary.html").is_file()
    run(*line, "--fusion", "majority", "--quiet")
    assert engine.done == ["a0", "a1", "a2"], "another fusion registers nothing again"


def test_tables_of_atlases_that_cannot_be_used(atlases, tmp_path):
    def said(lines, *options):
        (tmp_path / "t.csv").write_text(lines)
        image = atlases / "template.nii.gz"
        return run("segment", image, "--atlases", tmp_path / "t.csv", "-o", tmp_path / "out", *options, code=2).stderr

    assert "the table has no atlases" in said("image,labels\n")
    assert "needs a column 'labels'" in said("image\na.nii.gz")
    told = said("image,labels\n", "--mask", tmp_path / "gone.nii.gz", "--recipe", "brian")
    assert told.count("\n") == 3 and "gone.nii.gz does not exist" in told and "Unknown recipe" in told
    told = said("image,labels\na.nii.gz,\nb.nii.gz,c.nii.gz", "--fusion", "sum")
    assert told.count("\n") == 5, told
    assert "line 2: the atlas has no labels" in told and "The fusion 'sum' is not known" in told

"""Morphometry: t maps of log Jacobians against SciPy's tests, a shrunken region that is found, and what is refused."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import run
from small import GRID, QUICK, SHAPE, write_pair
from warpfactor.cohort.morphometry import MorphometrySettings
from warpfactor.cohort.morphometry.compare import log_jacobian
from warpfactor.cohort.morphometry.design import make_design
from warpfactor.cohort.morphometry.model import VoxelModel, significance

stats = pytest.importorskip("scipy.stats", reason="the extra `cohort` is not installed")
NAMES = tuple(f"sub{number}" for number in range(8))
CENTRE = (12, 13, 9)
RAW = MorphometrySettings(smooth_mm=0.0)


def shrinking(amount):
    """A displacement (voxels) that leads towards a point: what is there is smaller in the moving image."""
    axes = [torch.arange(n, dtype=torch.float32) for n in SHAPE]
    apart = torch.stack(torch.meshgrid(*axes, indexing="ij")) - torch.tensor(CENTRE).reshape(3, 1, 1, 1)
    return -amount * apart * torch.exp(-apart.square().sum(0) / (2 * 3.0**2))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder of eight results with known warps, of which the odd ones shrink a region, and its table."""
    folder = tmp_path_factory.mktemp("study")
    pair = write_pair(folder)
    first = wf.register(pair / "fixed.nii.gz", pair / "moving.nii.gz", overrides=QUICK)
    first.save(folder / "group" / "subjects" / NAMES[0], report=False)
    lines = ["name,group,age,sex"]
    for number, name in enumerate(NAMES):
        place = folder / "group" / "subjects" / name
        if number:
            shutil.copytree(folder / "group" / "subjects" / NAMES[0], place)
        own = wf.phantom.phantom(SHAPE, displacement_vox=0.2, seed=number).displacement
        warp = wf.Warp(own + shrinking(0.2 if number % 2 else 0.0), GRID)
        wf.write_transform(warp, place / "1Warp.nii.gz", force=True)
        lines.append(f"{name},{('well', 'ill')[number % 2]},{50 + 3 * number + number % 3},{'mf'[number // 3 % 2]}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def records(study):
    with (study / "people.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def maps(study):
    """(people, voxels) log Jacobians, of voxels where people differ."""
    results = [wf.read_result(study / "group" / "subjects" / name) for name in NAMES]
    found = np.stack([log_jacobian(result, RAW).double().numpy().ravel() for result in results])
    return found[:, found.std(0) > 1e-3]


def fitted(values, design):
    model = VoxelModel(design)
    for each in values:
        model.add(each)
    return model.effect_and_t()


def test_two_groups_are_a_t_test_and_numbers_a_regression(study):
    values, people = maps(study), records(study)
    effect, t = fitted(values, make_design(people, "group", ()))
    truth = stats.ttest_ind(values[0::2], values[1::2])  # "well - ill": the larger name in the alphabet first
    assert np.allclose(t, truth.statistic, rtol=1e-6) and np.allclose(
        effect, values[0::2].mean(0) - values[1::2].mean(0)
    )
    assert np.allclose(significance(t, 6)[0], truth.pvalue)
    ages = np.array([float(each["age"]) for each in people])
    slope, t = fitted(values, make_design(people, "age", ()))
    for voxel in (0, 1000, 2000):
        line = stats.linregress(ages, values[:, voxel])
        assert slope[voxel] == pytest.approx(line.slope) and t[voxel] == pytest.approx(line.slope / line.stderr)


def test_covariates_are_removed(study):
    """As the t of least squares on residuals after the covariates (Frisch, Waugh and Lovell)."""
    values, design = maps(study)[:, ::50], make_design(records(study), "group", ("age", "sex"))
    effect, t = fitted(values, design)
    others = design.matrix[:, 1:]
    off = np.eye(8) - others @ np.linalg.pinv(others)
    x, y = off @ design.matrix[:, 0], off @ values
    slope = x @ y / (x @ x)
    error = np.sqrt(((y - x[:, None] * slope) ** 2).sum(0) / (8 - 4) / (x @ x))
    assert np.allclose(effect, slope) and np.allclose(t, slope / error, rtol=1e-5)


def test_what_does_not_vary_has_no_t():
    design = make_design([{"name": str(k), "g": str(k % 2)} for k in range(4)], "g", ())
    effect, t = fitted(np.ones((4, 3)), design)
    assert (effect == 0).all() and (t == 0).all()


def test_the_command_finds_the_region_that_is_smaller(study, tmp_path):
    out = tmp_path / "volumes"
    line = ("morphometry", study / "group", study / "people.csv", "--effect", "group", "-o", out)
    done = run(*line, "--mask", study / "mask.nii.gz", "--smooth", 4)
    assert "well - ill, 8 people, 4 ill, 4 well" in done.stdout
    names = {"t.nii.gz", "effect.nii.gz", "q.nii.gz", "mean.nii.gz", "mask.nii.gz", "t.png", "morphometry.json"}
    assert {path.name for path in out.iterdir()} == names
    t, effect, q = (wf.read_image(out / f"{name}.nii.gz").data[0] for name in ("t", "effect", "q"))
    assert t[CENTRE] > 4 and q[CENTRE] < 0.05 and effect[CENTRE] > 0.15
    mask = wf.read_labels(study / "mask.nii.gz").data[0] > 0
    assert (t[~mask] == 0).all() and (q[~mask] == 1).all()
    entries = json.loads((out / "morphometry.json").read_text())
    assert entries["significant_voxels"]["larger"] == int(((q < 0.05) & (t > 0)).sum()) > 0
    assert "the folder is not empty" in run(*line, code=2).stderr
    told = json.loads(run(*line, "--force", "--total", "--json").stdout)
    assert told["degrees_of_freedom"] == 6


def test_total_adds_the_volume_of_the_affine(study):
    result = wf.read_result(study / "group" / "subjects" / "sub0")
    affine = next(part for part in result.transform.parts if isinstance(part, wf.Affine))
    both = [log_jacobian(result, MorphometrySettings(total, 0.0)) for total in (True, False)]
    assert torch.allclose(both[0] - both[1], torch.tensor(np.log(np.linalg.det(affine.matrix[:3, :3]))).float())


def test_everything_wrong_is_told_at_once(study, tmp_path):
    def said(lines, *options):
        (tmp_path / "t.csv").write_text(lines)
        command = ("morphometry", study / "group", tmp_path / "t.csv", "-o", tmp_path / "out", *options)
        return run(*command, code=2).stderr

    assert "has no lines" in said("", "--effect", "group")
    told = said("name,sex\nsub0,m\n", "--effect", "group", "--q", 2, "--smooth", -1)
    assert told.count("warpfactor: ") == 3 and "no column 'group'" in told
    told = said("name,g\nsub0,a\nsub0,\n", "--effect", "g")
    assert told.count("warpfactor: ") == 2 and "no g in row 2" in told and "'sub0' stands twice" in told
    assert "the same g, a" in said("name,g\nsub0,a\nsub1,a\n", "--effect", "g")
    assert "3 different texts" in said("name,g\nsub0,a\nsub1,b\nsub2,c\n", "--effect", "g")
    told = said("name,g\nsub0,a\ngone,b\n", "--effect", "g")
    assert "too few" in told and "gone: is not a result folder" in told
    same = "name,g,h\nsub0,a,1\nsub1,b,2\nsub2,a,1\nsub3,b,2\n"
    assert "determine each other" in said(same, "--effect", "g", "--covariate", "h")
    assert (
        "there is no such table"
        in run(
            "morphometry", study / "group", tmp_path / "no.csv", "-o", tmp_path / "out", "--effect", "g", code=2
        ).stderr
    )
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_people_results_mask_and_folder_is_told_together(study, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    table = ("--mask", tmp_path / "gone.nii.gz", "--effect", "grp", "-o", tmp_path / "out")
    told = run("morphometry", tmp_path / "nobody", study / "people.csv", *table, code=2).stderr
    assert told.count("\n") == 4, told
    for text in ("no column 'grp'", "nobody: there is no such folder", "gone.nii.gz does not exist", "is not empty"):
        assert text in told


def test_results_of_another_template_or_without_a_warp_are_refused(study, tmp_path):
    group = shutil.copytree(study / "group" / "subjects", tmp_path / "subjects")
    path = group / "sub3" / "result.json"
    entries = json.loads(path.read_text())
    entries["fixed"]["index_zyx_to_world_lps_mm"][0][3] += 5.0
    path.write_text(json.dumps(entries))
    path = group / "sub4" / "result.json"
    entries = json.loads(path.read_text())
    entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"] = None
    path.write_text(json.dumps(entries))
    with pytest.raises(wf.cohort.CohortError) as caught:
        wf.morphometry.compare(group, records(study), tmp_path / "out", effect="group")
    assert len(caught.value.problems) == 2
    assert "sub3: was registered to another image" in caught.value.problems[0]
    assert "sub4: the result has no warp" in caught.value.problems[1]

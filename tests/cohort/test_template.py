"""Templates: means of matrices and shapes, robust averages, and a template from files to page."""

import itertools
import json
import shutil

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import run
from people import write_people
from serial import SerialEngine, use_serial
from small import GRID, LINEAR, QUICK, QUICK_OPTIONS, SHAPE
from warpfactor.cohort.table.row import CohortRow
from warpfactor.cohort.template import TemplateSettings
from warpfactor.cohort.template.average import Averager, relative_change, sharpened, sharpness_per_mm
from warpfactor.cohort.template.matrices import exponential, logarithm, mean_matrix, mirror, square_root
from warpfactor.cohort.template.pace import at_finest, can_be_coarser, coarser, coarser_grid, continued
from warpfactor.cohort.template.shape import MeanMap, mean_map, split
from warpfactor.kernels import select

OPS = select("cpu")
NAMES = ("sub0", "sub1", "sub2")


def affine(rng, size=0.2):
    matrix = np.eye(4)
    matrix[:3] += size * rng.normal(size=(3, 4)) * (1, 1, 1, 30)
    return matrix


def test_logarithm_and_root_undo_exponential_and_square(rng):
    for _ in range(5):
        matrix = affine(rng)
        assert np.allclose(exponential(logarithm(matrix)), matrix, atol=1e-6)
        assert np.allclose(square_root(matrix) @ square_root(matrix), matrix, atol=1e-6)
    turned = np.diag([-1.0, -1.0, 1.0, 1.0])
    assert logarithm(turned) is None and np.allclose(mean_matrix([turned, np.eye(4)]), np.diag([0, 0, 1, 1]))


def test_the_mean_matrix_does_not_care_who_was_the_reference(rng):
    to_people, other = [affine(rng, 0.05) for _ in range(4)], affine(rng, 0.05)
    mean = mean_matrix(to_people)
    shapes = [matrix @ np.linalg.inv(mean) for matrix in to_people]
    moved = [matrix @ other for matrix in to_people]
    again = [matrix @ np.linalg.inv(mean_matrix(moved)) for matrix in moved]
    assert np.allclose(shapes, again, atol=2e-2), "to the first order"
    assert np.allclose(mean_matrix(shapes), np.eye(4), atol=2e-2)


def test_undoing_the_mean_leaves_no_mean(generator):
    """Of maps that are the same but for opposite parts, nothing but these parts is left."""
    fields = [wf.phantom.phantom(SHAPE, displacement_vox=1.0, seed=k).displacement for k in (1, 2)]
    maps = [wf.Warp(fields[0] + sign * 0.3 * fields[1], GRID) for sign in (-1, 1)]
    mean = mean_map([split(each) for each in maps], GRID)
    assert torch.allclose(mean.field, fields[0], atol=1e-5) and np.allclose(mean.matrix, np.eye(4))
    back = mean.back(OPS)
    left = mean_map([split(wf.Chain((*back.parts, each)).to_warp(GRID)) for each in maps], GRID)
    inside = (slice(None), slice(4, -4), slice(4, -4), slice(4, -4))
    assert left.field[inside].abs().mean() < 0.1 * mean.field[inside].abs().mean()


def test_velocities_have_a_mean_whose_inverse_is_the_flow_back():
    """Of one flow followed for different times, the mean is the flow for the mean time, and the way back is its own."""
    flow = wf.Velocity(wf.phantom.phantom(SHAPE, displacement_vox=1.0, seed=1).displacement, GRID)
    mean = mean_map([(np.eye(4), time * flow.field) for time in (0.5, 1.5)], GRID, flows=True)
    assert torch.allclose(mean.field, flow.field, atol=1e-5)
    back = mean.back(OPS)
    there_and_back = wf.Chain((*back.parts, flow.warp())).to_warp(GRID).displacement
    inside = (slice(None), slice(4, -4), slice(4, -4), slice(4, -4))
    assert there_and_back[inside].abs().max() < 0.05, "voxels, of interpolation; the warp is one voxel long"
    lengths_mm = GRID.voxels_to_mm(flow.warp(ops=OPS).displacement).norm(dim=0)
    assert mean.shift_mm(torch.ones(SHAPE, dtype=torch.bool), OPS) == pytest.approx(float(lengths_mm.mean()), rel=1e-3)


def test_a_mirrored_mean_is_symmetric():
    field = wf.phantom.phantom(SHAPE, displacement_vox=1.0, seed=4).displacement
    shifted = np.eye(4)
    shifted[0, 3] = 2.0
    both = MeanMap(shifted, field, GRID).mirrored(OPS)
    again = both.mirrored(OPS)
    assert torch.allclose(both.field, again.field, atol=1e-4)
    assert np.allclose(both.matrix, np.eye(4), atol=1e-6), "a shift to one side is undone by its mirror image"
    assert np.allclose(mirror(GRID) @ mirror(GRID), np.eye(4))


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("group"), 3)


def rows(folder, names=NAMES):
    image = {name: (folder / f"{name}.nii.gz",) for name in names}
    return [CohortRow(name, image[name], image[name], moving_labels=folder / f"{name}_labels.nii.gz") for name in names]


def test_the_mean_is_robust_and_keeps_intensities(group, tmp_path):
    people = [group / "template.nii.gz"] * 4
    bad = wf.read_image(people[0])
    bad.data[0, 10:14, 10:14, 10:14] += 5.0
    wf.write_image(bad, tmp_path / "bad.nii.gz")
    members = [CohortRow(str(k), (path,), (path,)) for k, path in enumerate([*people, tmp_path / "bad.nii.gz"])]
    found = Averager(members, lambda _: wf.Affine(), GRID, OPS).images()
    truth = wf.read_image(people[0])
    assert (found.data - truth.data).abs()[0, 10:14, 10:14, 10:14].mean() < 0.4, "the plain mean is off by 1"
    assert (found.data - truth.data).abs().mean() < 0.02
    assert 0 == relative_change(truth, truth) < relative_change(found, truth) < 0.3


def test_sharpening_sharpens_within_the_range(group):
    image = wf.read_image(group / "template.nii.gz")
    sharp = sharpened(image, 0.5, OPS)
    assert sharpness_per_mm(sharp) > 1.1 * sharpness_per_mm(image)
    assert sharp.data.max() <= image.data.max() and sharpened(image, 0.0, OPS) is image


def test_labels_are_voted_for_however_many_fit_at_once(group, monkeypatch):
    averager = Averager(rows(group), lambda _: wf.Affine(), GRID, OPS)
    shares = {}
    whole, share = averager.labels(lambda label, each: shares.setdefault(label, each.data[0]))
    monkeypatch.setattr("warpfactor.cohort.template.average._COUNT_BYTES", 1)
    again, _ = averager.labels()
    assert torch.equal(whole.data, again.data)
    maps = torch.stack([wf.read_labels(group / f"{name}_labels.nii.gz").data[0] for name in NAMES])
    assert torch.allclose(share.data[0], (maps == whole.data).float().mean(0))
    assert all(torch.allclose(part, (maps == label).float().mean(0)) for label, part in shares.items())
    assert set(shares) == set(maps.unique().tolist()) and averager.mask() is None


@pytest.fixture(scope="module")
def built(group, tmp_path_factory):
    """A symmetric template of three people, and who was registered for it."""
    pytest.importorskip("distributed", reason="the extra `cohort` is not installed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        engine = use_serial(monkeypatch)
        monkeypatch.setattr("warpfactor.checks.examine.align", lambda *_: None)
        out = tmp_path_factory.mktemp("built") / "out"
        options = ("--iterations", 2, "--tolerance", 0, "--labels", group / "{name}_labels.nii.gz", *QUICK_OPTIONS)
        options = (*options, "--probabilities")
        done = run("template", *(group / f"{name}.nii.gz" for name in NAMES), "-o", out, *options)
        return out, engine.done, done


def test_a_template_from_files_to_page(built, group):
    out, registered, done = built
    assert len(registered) == 3 * 4, "linear, two iterations, and everybody to the last template"
    assert "3 images, 2 iterations; change" in done.stdout and "iteration 1: change" in done.stderr
    records = [json.loads((out / "iterations" / f"0{k}" / "iteration.json").read_text()) for k in range(3)]
    assert records[2]["sharpness_per_mm"] > records[0]["sharpness_per_mm"], "sharper than the mean after affine"
    assert records[2]["change"] < records[1]["change"]
    assert set(records[2]["distances_mm"]) == set(NAMES)
    assert not list(out.glob("iterations/*/sub*/1Warp.nii.gz")), "large files of iterations are removed"
    assert all((out / "subjects" / name / "1Warp.nii.gz").is_file() for name in NAMES)
    labels = {int(label) for label in wf.read_labels(group / "sub0_labels.nii.gz").data.unique() if label}
    assert labels <= {int(path.name[:-7]) for path in (out / "template_labels_probabilities").iterdir()}
    page = (out / "template.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 3 and "Iteration 2" in page


def test_people_agree_in_the_space_of_the_template(built, group):
    out, _, _ = built
    maps = {name: wf.read_labels(out / "subjects" / name / "warped_labels.nii.gz").data[0] for name in NAMES}
    before = {name: wf.read_labels(group / f"{name}_labels.nii.gz").data[0] for name in NAMES}

    def agreement(labels):
        return np.mean(
            [wf.measure.dice_figures(labels[a], labels[b]).mean for a, b in itertools.combinations(NAMES, 2)]
        )

    assert agreement(maps) > agreement(before) + 0.03
    voted = wf.read_labels(out / "template_labels.nii.gz").data[0]
    assert min(wf.measure.dice_figures(voted, each).mean for each in maps.values()) > agreement(maps)


def test_a_second_run_registers_nobody_and_order_does_not_matter(built, group, tmp_path, monkeypatch):
    out = shutil.copytree(built[0], tmp_path / "out")
    engine = use_serial(monkeypatch)
    before = (out / "template.nii.gz").read_bytes()
    files = [group / f"{name}.nii.gz" for name in reversed(NAMES)]
    wf.template.build(
        files,
        out,
        labels=str(group / "{name}_labels.nii.gz"),
        overrides=QUICK,
        settings=TemplateSettings(iterations=2, tolerance=0.0),
    )
    assert engine.done == [] and (out / "template.nii.gz").read_bytes() == before


def test_a_symmetric_template_of_two_channels_with_masks(group, tmp_path, monkeypatch):
    use_serial(monkeypatch)
    for name in NAMES:
        labels = wf.read_labels(group / f"{name}_labels.nii.gz")
        wf.write_image(wf.Image((labels.data > 0).to(torch.uint8), GRID), tmp_path / f"{name}_mask.nii.gz")
        shutil.copy(group / f"{name}.nii.gz", tmp_path / f"{name}_t2.nii.gz")
    found = wf.template.build(
        [group / f"{name}.nii.gz" for name in NAMES],
        tmp_path / "out",
        channels=[str(tmp_path / "{name}_t2.nii.gz")],
        masks=str(tmp_path / "{name}_mask.nii.gz"),
        overrides=QUICK,
        options=wf.cohort.JobOptions(report=False),
        settings=TemplateSettings(iterations=1, symmetric=True),
    )
    assert found.image.channels == 2 and (tmp_path / "out" / "template_2.nii.gz").is_file()
    flipped = wf.Affine(mirror(found.image.grid)).resample(found.image, found.image.grid)
    assert (flipped.data - found.image.data).abs().max() < 0.02 * found.image.data.abs().max()
    assert found.mask is not None and found.labels is None


THREE_LEVELS = {**LINEAR, "deformable.levels": [4, 2, 1], "deformable.iterations": [6, 6, 3]}


def build_paced(group, out, engine, iterations=3, tolerance=0.0):
    """A template of people with a level to spare, by an engine."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_serial(monkeypatch, engine)
        return wf.template.build(
            [group / f"{name}.nii.gz" for name in NAMES],
            out,
            overrides=THREE_LEVELS,
            options=wf.cohort.JobOptions(report=False),
            settings=TemplateSettings(iterations=iterations, tolerance=tolerance),
        )


@pytest.fixture(scope="module")
def paced(group, tmp_path_factory):
    """Such a template, and how many registrations it took."""
    pytest.importorskip("distributed", reason="the extra `cohort` is not installed")
    engine = SerialEngine()
    return build_paced(group, tmp_path_factory.mktemp("paced") / "out", engine), len(engine.done)


def test_early_iterations_are_coarser_and_the_last_ones_go_on_from_them(paced, group):
    found, registered = paced
    out, full = found.folder, wf.read_image(group / "sub0.nii.gz").grid
    assert registered == 3 * 5, "linear, three iterations, and everybody to the last template"
    assert found.image.grid.shape == full.shape
    assert [record.spacing_mm for record in found.iterations][3] == min(full.spacing_mm)
    assert all(record.spacing_mm > 1.2 * min(full.spacing_mm) for record in found.iterations[:3])
    recipes = {k: json.loads((out / place / "sub0" / "result.json").read_text()) for k, place in PLACES.items()}
    warps = {k: each["recipe"]["deformable"] for k, each in recipes.items()}
    assert [warps[k]["levels"] for k in ("1", "2", "3", "last")] == [[4, 2, 1], [4, 2, 1], [2, 1], [1]]
    assert [stage["name"] for stage in recipes["last"]["stages"]] == ["deformable"], "no linear stage once more"
    distances = [max(record.distances_mm.values()) for record in found.iterations[1:]]
    assert distances[2] > 0.8 * distances[1], "it goes on from the warp of the iteration before"
    assert not (out / "coarser").exists()
    kept = {path.parent.parent.name for path in out.glob("iterations/*/sub*/1Warp.nii.gz")}
    assert kept == {"03"}, "the starts of the last registrations"


PLACES = {"1": "iterations/01", "2": "iterations/02", "3": "iterations/03", "last": "subjects"}


def test_a_template_stays_at_full_resolution_until_it_stands_still(group, tmp_path):
    """The first full iteration changes a template by its detail, however still it stood before."""
    found = build_paced(group, tmp_path / "out", SerialEngine(), iterations=5, tolerance=0.03)
    changes = [record.change for record in found.iterations]
    assert changes[2] < 0.03 < changes[3], "so that there are two iterations or more at full resolution"
    sharpness = [record.sharpness_per_mm for record in found.iterations]
    assert len(sharpness) > 4 and min(sharpness[3:]) > 1.2 * max(sharpness[:3]), "it does not get blurred again"
    kept = {path.parent.parent.name for path in found.folder.glob("iterations/*/sub*/1Warp.nii.gz")}
    assert kept == {f"{len(changes) - 1:02d}"}, "the starts of the last registrations"


def test_a_template_that_was_stopped_goes_on_where_it_was(paced, group, tmp_path):
    def stop(job):
        if job.output.name == "03" and len(engine.done) == 3 * 3 + 1:
            raise KeyboardInterrupt

    found, registered = paced
    engine, other = SerialEngine(stop), SerialEngine()
    with pytest.raises(KeyboardInterrupt):
        build_paced(group, tmp_path / "out", engine)
    again = build_paced(group, tmp_path / "out", other)
    assert len(engine.done) == 3 * 3 + 1 and len(engine.done) + len(other.done) == registered
    assert torch.equal(found.image.data, again.image.data)
    for name in NAMES:
        files = [each.folder / "subjects" / name / "1Warp.nii.gz" for each in (found, again)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_which_images_have_a_level_to_spare():
    recipe = wf.recipe("default")
    wide, narrow = wf.Grid.from_spacing((80, 128, 112), 0.15), wf.Grid.from_spacing((40, 64, 56), 0.3)
    assert can_be_coarser(recipe, wide) and not can_be_coarser(recipe, narrow)
    assert not can_be_coarser(wf.recipe("affine"), wide)


def test_a_coarser_image_keeps_values_and_what_has_none():
    grid = wf.Grid.from_spacing((16, 40, 40), (2.0, 1.0, 1.0))
    data = torch.full((1, *grid.shape), 3.0)
    data[:, :, :8] = torch.nan
    small = coarser(wf.Image(data, grid), coarser_grid(grid, 2.0), OPS)
    assert small.grid.shape == (16, 20, 20), "the first axis is that coarse already"
    inside = torch.isfinite(small.data)
    assert not inside[:, :, :3].any() and inside[:, :, 4:].all()
    assert torch.allclose(small.data[inside], torch.tensor(3.0), atol=1e-4)
    assert np.allclose(small.grid.index_to_world([[7.5, 9.5, 9.5]]), grid.index_to_world([[7.5, 19.5, 19.5]]))


@pytest.mark.parametrize("kind", ["deformable", "broad", "across"])
def test_what_was_chosen_for_a_pair_is_not_looked_for_again(kind):
    recipe = wf.recipe("default")
    coarse, full = wf.Grid.from_spacing((40, 64, 56), 0.3), wf.Grid.from_spacing((80, 128, 112), 0.15)
    ran = recipe.for_grid(coarse).for_contrasts(same=kind != "across").for_motion(broad=kind == "broad")
    grid = {"shape_zyx": coarse.shape, "index_zyx_to_world_lps_mm": coarse.matrix.tolist(), "dimension": 3}
    entries = json.loads(json.dumps({"fixed": grid, "moving": grid, "recipe": ran.to_dict()}))
    again = at_finest(continued(recipe, entries), full)
    wanted = getattr(recipe.for_grid(full), kind)
    assert again.deformable.levels == (1.0,) and again.deformable.iterations == wanted.iterations[-1:]
    assert again.deformable.sigma_grad == wanted.sigma_grad and again.deformable.metric == wanted.metric.for_levels(1)
    assert (again.broad, again.across, again.deformable.broad_from) == (None, None, 0.0)
    assert at_finest(continued(recipe, {**entries, "recipe": again.to_dict()}), full) == again, "and once more"
    two = at_finest(continued(recipe, entries), full, 2).deformable
    assert (two.levels, two.iterations) == ((2.0, 1.0), wanted.iterations[-2:])
    incomplete = {**entries, "moving": {**entries["moving"], "missing_share": 0.2}}
    assert continued(recipe, incomplete) is None, "what is missing is looked for from the affine"
    assert continued(wf.recipe("symmetric"), {**entries, "recipe": wf.recipe("symmetric").to_dict()}) is None


def test_what_cannot_be_a_template(group, tmp_path):
    told = run("template", group / "sub0.nii.gz", "-o", tmp_path / "o", "--iterations", 0, "--sharpen", -1, code=2)
    assert told.stderr.count("warpfactor: ") == 3 and "at least 2 images" in told.stderr
    flat = tmp_path / "flat.nii.gz"
    wf.write_image(wf.Image.from_array(wf.phantom.phantom((1, 32, 28)).fixed[0].numpy()), flat)
    told = run("template", group / "sub0.nii.gz", flat, "-o", tmp_path / "o", "--start", flat, code=2).stderr
    assert told.count("flat.nii.gz is 2-D") == 1 and "needs images of one dimension" in told
    told = run("template", group / "sub0.nii.gz", tmp_path / "gone.nii.gz", "-o", tmp_path / "o", code=2).stderr
    assert told.count("\n") == told.count("gone.nii.gz does not exist") == 1, "and not as fixed image once more"
    (tmp_path / "t.csv").write_text("image,labels\na\n")
    assert "line 2 has 1 cells" in run("template", tmp_path / "t.csv", "-o", tmp_path / "o", code=2).stderr
    (tmp_path / "t.csv").write_text("name,labels\na,b\n")
    assert "needs a column 'image'" in run("template", tmp_path / "t.csv", "-o", tmp_path / "o", code=2).stderr

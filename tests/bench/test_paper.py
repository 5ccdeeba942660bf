"""The paper's experiments: which settings they run, and what they make of known scores."""

import json
from pathlib import Path

import pytest

import paper_runs
from warpfactor.bench.data.dataset import read_table
from warpfactor.bench.data.example import write_example
from warpfactor.bench.paper import EXPERIMENTS, published, sensitivity, tile
from warpfactor.bench.paper.methods import DAMPING, adam, lm, ours
from warpfactor.bench.paper.page import write
from warpfactor.bench.paper.pairs import Pairs, gather
from warpfactor.bench.paper.rejection import methods_of, outliers
from warpfactor.bench.paper.study import Study, StudyPlan
from warpfactor.bench.run.runner import RunOptions
from warpfactor.bench.score.measures import DICE, TRE
from warpfactor.bench.speed import runs as speed
from warpfactor.bench.speed.runs import SpeedMeasurement
from warpfactor.errors import FileError, InputError
from warpfactor.recipebook.files import recipe

PLAN = StudyPlan()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_example(tmp_path_factory.mktemp("data") / "ex", pairs=3, shape=(1, 32, 32))


@pytest.fixture
def runner(monkeypatch):
    return paper_runs.install(monkeypatch)


def pairs_of(table, count=8, **names):
    """`count` pairs in one group; some of them under other names."""
    case = read_table(table).cases[0]
    listed = [names.get(f"p{n}", f"p{n}") for n in range(count)]
    return Pairs(tuple(paper_runs.renamed(case, name, "brain") for name in listed), {"brain": {1: "left", 2: "right"}})


def run(name, pairs, folder, **options):
    """An experiment on made-up runs: its findings, and its tables by name as rows."""
    study = Study(pairs, folder, plan=StudyPlan(**options))
    EXPERIMENTS[name].check(study)
    findings = EXPERIMENTS[name].run(study)
    files = write(EXPERIMENTS[name], findings, study)
    assert {path.suffix for path in files} == {".csv", ".json", ".md", ".png"} and all(p.exists() for p in files)
    return findings, json.loads((folder / name / f"{name}.json").read_text(encoding="utf-8"))


def settings(method, table):
    return method.settings_for(read_table(table).cases[0])["deformable"]


# What is run


def test_lm_and_adam_differ_in_the_step_only(table):
    own, other = settings(lm(PLAN), table), settings(adam(PLAN), table)
    assert {key for key in own if own[key] != other[key]} == {"optimizer", "damping", "step"}
    assert {key: own["damping"][key] for key in DAMPING} == DAMPING
    assert (own["step"], other["step"]) == (0.5 * 0.75, 0.5 * 0.5)


def test_iterations_are_set_for_the_papers_methods_and_bound_ours():
    plan = StudyPlan(iterations=(20, 40, 5))
    assert lm(plan).changes["deformable.iterations"] == [20, 40, 5]
    assert ours(plan).changes["deformable.iterations"] == [20, 30, 5]
    assert recipe("lung").deformable.iterations == (40, 40, 25, 15)
    assert ours(plan, "lung").changes["deformable.iterations"] == [20, 20, 25, 5]
    with pytest.raises(InputError, match="3 levels"):
        lm(StudyPlan(iterations=(20, 5)))


def test_sweeps_have_the_papers_grids():
    assert [len(sensitivity.grid(setting)) for setting in sensitivity.SYMBOLS] == [12, 12, 12]
    assert sensitivity.grid("increase", 3) == [1.5, 6.136, 10.0]
    ratios = [b / a for a, b in zip(sensitivity.grid("initial"), sensitivity.grid("initial")[1:], strict=False)]
    assert max(ratios) / min(ratios) == pytest.approx(1, abs=0.01)  # evenly spaced logarithms
    assert len(sensitivity.points_of(PLAN)) == 3 * 36 + 12
    labels = [point.method.label for point in sensitivity.points_of(PLAN)]
    assert len(set(labels)) == len(labels)


def test_our_initial_damping_is_swept_by_the_papers_ratios_and_never_below_its_floor():
    rule = sensitivity.trust()
    for value, expected in ((0.0001, rule.floor), (0.06, 10 * rule.initial)):
        method = sensitivity.MODES[sensitivity.DEFAULT](PLAN, "initial", value)
        assert method.changes["deformable.damping.initial"] == pytest.approx(expected)
    both = sensitivity.MODES[sensitivity.FLOOR](PLAN, "initial", 0.0006).changes
    assert both["deformable.damping.floor"] == both["deformable.damping.initial"] == pytest.approx(rule.initial / 10)


def test_tiles_of_all_sizes_and_the_pointwise_form_for_one(table):
    methods = tile.methods_of(PLAN)
    assert list(methods) == list(range(1, 11))
    assert settings(methods[1], table) == settings(lm(PLAN), table)
    assert [settings(methods[k], table)["optimizer"]["tile_size"] for k in (2, 10)] == [2, 10]


def test_rejection_has_the_papers_conditions_with_and_without_the_stop_rule(table):
    found = {key: settings(method, table) for key, method in methods_of(PLAN).items()}
    assert {
        (k, f["damping"]["tolerance"], f["damping"]["cap"], f["convergence"]["slope"]) for k, f in found.items()
    } == {
        (("on", "no rejection"), None, "inf", 1e-6),
        (("on", "rejection, no cap"), 1.0, "inf", 1e-6),
        (("on", "rejection, cap 1"), 1.0, 1.0, 1e-6),
        (("off", "no rejection"), None, "inf", None),
        (("off", "rejection, no cap"), 1.0, "inf", None),
        (("off", "rejection, cap 1"), 1.0, 1.0, None),
    }


# What is made of it


def test_main_has_means_pairs_won_and_the_outlier(table, runner, tmp_path):
    findings, found = run("main", pairs_of(table), tmp_path)
    rows = {row["method"]: row for row in found["summary"]}
    assert list(rows) == ["Adam", "LM", "default"] and findings.failed == 0
    lm_scores = [paper_runs.dice({"deformable": settings(lm(PLAN), table)}, n) for n in range(8)]
    assert rows["LM"]["mean"] == pytest.approx(sum(lm_scores) / 8)
    assert rows["LM"]["worst"] == pytest.approx(lm_scores[0]) and rows["LM"]["worst_pair"] == "p0"
    assert rows["LM"]["won"] == "8 / 8" and rows["Adam"]["won"] is None
    assert rows["Adam"]["outlier"] == "p0" and rows["LM"]["mean_without"] == pytest.approx(sum(lm_scores[1:]) / 7)
    first = found["differences"][0]
    assert (first["method"], first["other"], first["measure"], first["clear"]) == ("LM", "Adam", "Dice", "yes")
    assert first["low"] < first["difference"] < first["high"]
    page = (tmp_path / "main" / "main.md").read_text(encoding="utf-8")
    assert "![Adam against LM](main.png)" in page and "warpfactor 0." in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("|", "`")))


def test_few_pairs_make_no_clear_difference(table, runner, tmp_path):
    _, found = run("main", pairs_of(table, 5), tmp_path)
    assert {row["clear"] for row in found["differences"]} == {"too few"}
    _, found = run("labels", pairs_of(table, 5), tmp_path)
    assert {(row["better"], row["clearly_better"], row["clearly_worse"]) for row in found["overview"]} == {
        (2, "too few", "too few")
    }


def test_one_pair_has_no_outlier(table, runner, tmp_path):
    _, found = run("main", pairs_of(table, 1), tmp_path)
    assert not any("outlier" in row for row in found["summary"])


def test_a_pair_may_name_a_recipe_of_its_own(table, runner, tmp_path):
    case = read_table(table).cases[0]
    pairs = Pairs((case.__class__(**{**vars(case), "recipe": "lung"}), paper_runs.renamed(case, "other")))
    _, found = run("main", pairs, tmp_path)
    assert {(row["case"], row["method"]) for row in found["pairs"] if row["method"] == "lung"} == {(case.name, "lung")}


def test_pairs_that_fail_are_listed_and_do_not_stop_the_rest(table, runner, tmp_path):
    findings, found = run("main", pairs_of(table, p2=paper_runs.BROKEN, p3=paper_runs.LOST), tmp_path)
    assert {(row["case"], row["method"]) for row in found["failures"]} == {
        (paper_runs.LOST, "affine"),
        *((paper_runs.BROKEN, method) for method in ("Adam", "LM", "default")),
    }
    assert all(row["reason"].endswith("cannot be registered.") for row in found["failures"])
    assert findings.failed == 4 and {row["count"] for row in found["summary"]} == {6}


def test_labels_are_compared_one_by_one_and_by_name(table, runner, tmp_path):
    _, found = run("labels", pairs_of(table), tmp_path)
    left, right = found["labels"]
    assert (left["name"], right["name"], left["count"]) == ("left", "right", 8)
    assert right["LM"] - left["LM"] == pytest.approx(0.2) and left["lm_difference"] == pytest.approx(
        left["LM"] - left["Adam"]
    )
    assert found["overview"][0] == {
        "group": "brain",
        "method": "LM",
        "other": "Adam",
        "labels": 2,
        "better": 2,
        "clearly_better": 2,
        "clearly_worse": 0,
    }


def test_labels_need_labels(table, runner, tmp_path):
    case = read_table(table).cases[0]
    bare = case.__class__(case.name, case.fixed, case.moving)
    with pytest.raises(InputError, match="No pair has labels"):
        run("labels", Pairs((bare,)), tmp_path)


def test_sensitivity_says_how_far_each_setting_goes(table, runner, tmp_path):
    _, found = run("sensitivity", pairs_of(table), tmp_path, points=4)
    ranges = {(row["mode"], row["setting"]): row for row in found["ranges"]}
    assert ranges["LM", "initial"]["range"] == 0 and ranges["LM", "initial"]["near"] == "4 / 4"
    assert ranges["LM", "increase"]["at_highest"] == "1.5" and ranges["LM", "increase"]["at_lowest"] == "10"
    assert ranges["default", "increase"]["range"] == 0
    endless = [r["mean"] for r in found["sensitivity"] if r["mode"] == sensitivity.ENDLESS]
    usual = [r["mean"] for r in found["sensitivity"] if r["mode"] == "LM"]
    assert [a - b for a, b in zip(usual, endless, strict=True)] == pytest.approx([0.1] * 12)
    at_default = next(
        r for r in found["sensitivity"] if (r["mode"], r["setting"], r["value"]) == ("LM", "increase", 1.5)
    )
    assert at_default["difference"] == 0 and at_default["last_damping"] == "0.5"


def test_tiles_are_compared_with_the_pointwise_form(table, runner, tmp_path):
    _, found = run("tile", pairs_of(table), tmp_path)
    differences = [row["difference"] for row in found["tiles"]]
    assert differences[0] is None
    assert differences[1:] == pytest.approx([-0.005 * k for k in range(2, 11)])


def test_rejection_finds_what_each_condition_changes(table, runner, tmp_path):
    _, found = run("rejection", pairs_of(table), tmp_path)
    rows = {(row["rule"], row["condition"]): row for row in found["conditions"]}
    assert rows["off", "rejection, cap 1"]["difference"] == pytest.approx(0.1)
    assert rows["off", "rejection, no cap"]["difference"] == 0 == rows["on", "rejection, cap 1"]["difference"]
    assert len(found["pairs"]) == 8 * 6 and found["pairs"][0]["rejected"] == 3
    more = {(row["rule"], row["condition"]): row for row in found["outliers"]}
    assert more["off", "rejection, cap 1"]["gains_most"].count("to") == 1


def test_outliers_are_pairs_far_beyond_the_quartiles_on_the_worse_side():
    usual = {f"p{n}": 1.0 + 0.1 * n for n in range(9)}
    assert outliers({**usual, "far": 8.2}, TRE) == ["far"] and outliers({**usual, "far": 8.2}, DICE) == []
    assert outliers({**usual, "far": -5.0}, DICE) == ["far"]
    assert outliers({"a": 1.0, "b": 1.0, "c": 9.0}, TRE) == []


def test_efficiency_measures_adam_and_lm_by_bench_speed(monkeypatch, tmp_path):
    bytes_each = {"adam": 60, "lm": 36, "default": 48}

    def measure(jobs, folder, *, again, announce):
        assert {(job.kind, job.metric, job.backend) for job in jobs} == {("iteration", "lncc", "numba")}
        return [
            SpeedMeasurement(
                job, {"voxels": job.size**3, "peak_bytes": bytes_each[job.optimizer] * job.size**3, "seconds": 0.5}
            )
            for job in jobs
        ]

    monkeypatch.setattr(speed, "run_all", measure)
    findings, found = run("efficiency", Pairs(), tmp_path, sizes=(32, 48))
    assert [row["place"] for row in found["efficiency_lncc"]] == ["32^3", "48^3"] and findings.failed == 0
    assert found["efficiency_lncc"][0]["saved_percent"] == pytest.approx(40)


# Pairs


def test_a_page_has_the_command_that_makes_it_again(table, runner, tmp_path, monkeypatch):
    """As given, or from the working folder, so that it can be pasted and says no more of the machine than it must."""
    monkeypatch.chdir(table.parent.parent)
    pairs = gather([Path("ex/pairs.csv")], limit=1)
    study = Study(
        pairs, table.parent.parent / "out put", plan=StudyPlan(iterations=(2, 1, 1)), options=RunOptions(jobs=2)
    )
    write(EXPERIMENTS["main"], EXPERIMENTS["main"].run(study), study)
    page = (study.folder / "main" / "main.md").read_text(encoding="utf-8")
    typed = "--data ex/pairs.csv --limit 1 --iterations 2,1,1 --jobs 2 -o 'out put'"
    assert f"`warpfactor bench paper main {typed}`" in page
    assert gather([table], limit=1).command == "--data ex/pairs.csv --limit 1"


def test_only_the_pairs_that_are_used_need_their_files(table):
    broken = table.with_name("broken.csv")
    broken.write_text(table.read_text(encoding="utf-8").replace("pair2_moving.nii.gz", "no.nii.gz"), encoding="utf-8")
    assert len(gather([broken], limit=2).cases) == 2
    with pytest.raises(FileError, match=r"broken\.csv: case 'phantom 2', column 'moving'"):
        gather([broken])


def test_pairs_of_several_datasets_are_told_apart_chosen_and_limited(table):
    other = table.with_name("more.csv")
    other.write_text(table.read_text(encoding="utf-8").replace(",phantom,", ",again,"), encoding="utf-8")
    both = gather([table, other])
    assert [case.name for case in both.cases][::3] == ["phantom phantom 0", "again phantom 0"]
    assert both.groups == ("phantom", "again")
    assert [case.group for case in gather([table, other], limit=1).cases] == ["phantom", "again"]
    assert gather([table, other], pattern="again*", limit=2).command == (
        f"--data {table} --data {other} --cases 'again*' --limit 2"
    )
    with pytest.raises(InputError, match="occurs twice"):
        gather([table, table])
    with pytest.raises(InputError, match="at least 1 pair"):
        gather([table], limit=0)


def test_everything_is_run_again_once(table, runner, tmp_path):
    study = Study(pairs_of(table, 1), tmp_path, options=RunOptions(again=True))
    study.run([lm(PLAN)])
    study.run([lm(PLAN, "same"), adam(PLAN)])
    assert [label for _, label, again in runner.calls if again] == ["affine", "LM", "Adam"]


def test_published_numbers_are_the_papers():
    """Spot checks, and the contradiction: LM without rejection on OASIS has Adam's numbers in table 4."""
    main = {(row["data"], row["method"]): (row["mean"], row["sd"]) for row in published.MAIN.rows}
    rejection = {(row["data"], row["condition"]): (row["mean"], row["sd"]) for row in published.REJECTION.rows}
    assert main["LUMIR", "LM"] == rejection["LUMIR (Dice)", "no rejection"] == (0.8715, 0.0163)
    assert rejection["OASIS (Dice)", "no rejection"] == main["OASIS", "Adam"] != main["OASIS", "LM"]

"""Several kinds of images in one benchmark: tables in a folder or a list, and methods compared over the kinds."""

import csv
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import stand_ins
from warpfactor.bench.data.dataset import read_dataset
from warpfactor.bench.data.example import write_example
from warpfactor.bench.data.kinds import COLLECTION, write_kind_tables
from warpfactor.bench.run import runner
from warpfactor.bench.run.record import DONE, FAILED, Run
from warpfactor.bench.score.kinds import kind_table, win_table
from warpfactor.cli import app as cli
from warpfactor.errors import FileError, InputError

QUICK = "linear.levels=2+linear.iterations=1+linear.starts=identity"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with a table of flat phantoms and one of volumes, which have landmarks only."""
    folder = tmp_path_factory.mktemp("kinds")
    flat = write_example(folder / "flat_files", pairs=1, shape=(1, 32, 32))
    solid = write_example(folder / "solid_files", pairs=1, shape=(16, 18, 20))
    (folder / "flat.csv").write_text(_below(flat, "flat_files"), encoding="utf-8")
    rows = list(csv.DictReader(_below(solid, "solid_files").splitlines()))
    kept = [name for name in rows[0] if "labels" not in name]
    lines = [",".join(kept), *(",".join(row[name] for name in kept) for row in rows)]
    (folder / "solid.csv").write_text("\n".join(lines), encoding="utf-8")
    return folder


def _below(table, folder):
    return table.read_text(encoding="utf-8").replace("pair0_", f"{folder}/pair0_")


def test_each_table_of_a_folder_is_a_kind(tables):
    dataset = read_dataset(tables)
    assert [(case.group, case.name) for case in dataset.cases] == [
        ("flat", "flat phantom 0"),
        ("solid", "solid phantom 0"),
    ]


def test_a_list_names_the_kinds_and_the_folder_of_the_data(tables, tmp_path):
    shutil.copy(tables / "flat.csv", tmp_path / "a.csv")
    listed = tmp_path / "mine.toml"
    listed.write_text(f'data = "{tables}"\n[kinds]\nsections = "a.csv"\n', encoding="utf-8")
    (case,) = read_dataset(listed).cases
    assert case.group == "sections" and case.fixed == tables / "flat_files" / "pair0_fixed.nii.gz"


@pytest.mark.parametrize(
    ("text", "words"),
    [("data = 3", r"section \[kinds\]"), ("[kinds", "not valid TOML"), ('[kinds]\na = "no.csv"', "no such table")],
)
def test_what_is_wrong_with_a_list_is_named(tmp_path, text, words):
    (tmp_path / "kinds.toml").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=words):
        read_dataset(tmp_path)


def test_landmark_files_beside_the_tables_are_no_kinds(tables, tmp_path):
    folder = tmp_path / "here"
    shutil.copytree(tables, folder)
    (folder / "landmarks.csv").write_text("x,y,z\n1,2,3\n", encoding="utf-8")
    assert len(read_dataset(folder).cases) == 2


def make_collection(folder):
    """Empty files under the names of the collection; liver landmarks have 22 points."""
    lines = ["id,fix_x_lps", *(f"{number},0" for number in range(22))]
    for kind in COLLECTION:
        for case in kind.cases(folder):
            for path in case.files().values():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(lines) if path.suffix == ".csv" else "", encoding="utf-8")


def test_tables_of_the_collection(tmp_path):
    make_collection(tmp_path / "data")
    counts = write_kind_tables(tmp_path / "data", tmp_path / "tables")
    assert counts == {
        "brain": 8,
        "mouse": 2,
        "protonlung": 4,
        "hippocampus": 10,
        "slices2d": 10,
        "lung": 1,
        "liver": 4,
        "macaque": 1,
        "contrast": 1,
        "knee": 1,
        "histology": 5,
    }
    cases = {(case.group, case.name): case for case in read_dataset(tmp_path / "tables").cases}
    assert len(cases) == sum(counts.values())
    assert ("brain", "1007 <- 1000") in cases and ("mouse", "fvb3 <- fvb4") in cases
    assert cases["brain", "1000 <- 1001"].moving_labels.name == "1001_labels.nii.gz"
    assert {case.recipe for case in cases.values() if case.group == "liver"} == {"abdomen"}
    inside = cases["liver", "s18_exh <- s18_cyc_1_10"].fixed_landmarks
    assert inside.parent == tmp_path / "tables" and len(inside.read_text(encoding="utf-8").splitlines()) == 3


def test_the_collection_needs_its_folders_and_files(tmp_path):
    with pytest.raises(FileError, match="none of the expected subfolders"):
        write_kind_tables(tmp_path, tmp_path / "tables")
    (tmp_path / "mouse").mkdir()
    with pytest.raises(FileError, match=r"fvb1_t2_brain\.nii\.gz does not exist"):
        write_kind_tables(tmp_path, tmp_path / "tables")
    assert not (tmp_path / "tables").exists()


def test_the_collection_is_that_of_the_real_data(data_dir, tmp_path):
    write_kind_tables(data_dir, tmp_path / "tables")
    assert len(read_dataset(tmp_path / "tables").cases) == 47


def run(kind, case, method, value, key="dice", **more):
    if value is None:
        return Run(case, kind, method, FAILED, reason="It failed.")
    return Run(case, kind, method, DONE, scores={key: value, "sd_log_jacobian": 0.4, **more})


def runs():
    """Brains: one pair won, one lost; lungs: lower is better; knee: the other tool fails."""
    return [
        run("brain", "b1", "default", 0.65, dice_before=0.3),
        run("brain", "b1", "greedy", 0.60),
        run("brain", "b2", "default", 0.60, dice_before=0.5),
        run("brain", "b2", "greedy", 0.62),
        run("lung", "l1", "default", 1.5, "tre_mean_mm"),
        run("lung", "l1", "greedy", 1.2, "tre_mean_mm", shear=0.2),
        run("knee", "k1", "default", 0.9, "tre_mean_mm"),
        run("knee", "k1", "greedy", None),
    ]


def test_one_row_per_kind():
    table = kind_table(runs())
    brain, lung, knee = table.rows
    assert (brain["kind"], brain["count"], brain["measure"], lung["measure"]) == ("brain", 2, "Dice", "TRE mm")
    assert brain["default"] == pytest.approx(0.625) and brain["greedy"] == pytest.approx(0.61)
    assert brain["before"] == pytest.approx(0.4) and brain["default sd_log_jacobian"] == pytest.approx(0.4)
    assert (brain["won greedy"], lung["won greedy"], knee["won greedy"]) == ("1 / 1", "0 / 1", "1 / 0")
    assert brain["worst_pair"] == "b2: 0.6000"
    assert brain["largest_loss"] == "b2: 0.6000, greedy 0.6200"
    assert knee["largest_loss"] is None
    keys = [column.key for column in table.columns]
    assert "greedy shear" in keys and "default shear" not in keys


def test_wins_are_counted_over_kinds_and_pairs():
    """The brain is won by its mean, the lung lost, and the knee won because the other tool failed."""
    (row,) = win_table(runs()).rows
    assert (row["kinds_won"], row["kinds_lost"], row["pairs_won"], row["pairs_lost"]) == (2, 1, 2, 2)


def test_a_pair_ahead_of_all_others_is_no_loss():
    ahead = [run("brain", "b1", "default", 0.65), run("brain", "b1", "greedy", 0.60), run("x", "x", "default", 0.5)]
    assert kind_table(ahead).rows[0]["largest_loss"] == "none (nearest b1: 0.6500, greedy 0.6000)"


def test_our_failure_is_a_loss_and_the_worst_case():
    lost = [run("brain", "b1", "default", None), run("brain", "b1", "greedy", 0.6)]
    assert kind_table(lost).rows[0]["worst_pair"] == "b1: failed"
    assert win_table(lost).rows[0]["kinds_lost"] == 1


def test_the_command_compares_methods_over_kinds(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_run_once", stand_ins.run_here)
    methods = f"a=rigid+{QUICK},b=affine+{QUICK}"
    options = ["bench", "accuracy", "--data", tables, "--methods", methods, "-o", tmp_path / "out"]
    done = CliRunner().invoke(cli.app, [str(option) for option in options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Kinds of images" in done.stdout and "Wins and losses" in done.stdout and "Per pair" not in done.stdout
    rows = list(csv.DictReader((tmp_path / "out" / "accuracy_kinds.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["kind"], row["measure"]) for row in rows] == [("flat", "Dice"), ("solid", "TRE mm")]
    assert "### Wins and losses" in (tmp_path / "out" / "accuracy.md").read_text(encoding="utf-8")


def test_tables_are_written_by_a_command(tmp_path):
    make_collection(tmp_path / "data")
    command = ["datasets", "--kinds", str(tmp_path / "data")]
    missing = CliRunner().invoke(cli.app, command)
    assert missing.exit_code == 2 and "-o FOLDER" in missing.stderr
    done = CliRunner().invoke(cli.app, [*command, "-o", str(tmp_path / "tables")])
    assert done.exit_code == 0 and "brain (8)" in done.stdout


def test_a_pair_that_is_listed_twice_is_refused(tables, tmp_path):
    listed = tmp_path / "twice.toml"
    text = (tables / "flat.csv").read_text(encoding="utf-8")
    (tmp_path / "a.csv").write_text(text + text.splitlines()[1], encoding="utf-8")
    listed.write_text(f'data = "{tables}"\n[kinds]\na = "a.csv"\n', encoding="utf-8")
    with pytest.raises((FileError, InputError), match="phantom 0"):
        read_dataset(listed)


def test_the_page_lists_the_collection():
    page = (Path(__file__).parents[2] / "docs" / "benchmarks" / "kinds.md").read_text(encoding="utf-8")
    for kind in COLLECTION:
        patterns = [f"{kind.name}/{name}" for name in (kind.image, kind.labels, kind.landmarks, kind.mask) if name]
        assert all(f"`{pattern}`" in page for pattern in patterns), kind.name
        assert all(f"{fixed} <- {moving}" in page for fixed, moving in (kind.pairs[0], kind.pairs[-1]))

"""Datasets: tables and Learn2Reg folders are read as they are meant, and what is wrong is named before any work."""

import json

import nibabel
import numpy as np
import pytest

import warpfactor as wf
from warpfactor.bench.data.dataset import BenchCase, check_files, read_dataset, read_table, write_table
from warpfactor.bench.data.example import write_example
from warpfactor.bench.data.landmarks import read_pair
from warpfactor.bench.data.learn2reg import read_learn2reg
from warpfactor.errors import FileError, InputError
from warpfactor.io.points import read_keypoints


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def table(folder, *lines, name="pairs.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def images(tmp_path):
    touch(*(tmp_path / name for name in ("a.nii.gz", "b.nii.gz", "c.nii.gz", "sub/la.nii.gz", "sub/lb.nii.gz")))
    return tmp_path


def test_paths_of_a_table_are_relative_to_it(images):
    lines = ("fixed,moving,fixed_labels,moving_labels", "a.nii.gz,b.nii.gz,sub/la.nii.gz,sub/lb.nii.gz")
    (case,) = read_table(table(images, *lines)).cases
    assert case.fixed == images / "a.nii.gz"
    assert case.moving_labels == images / "sub/lb.nii.gz"
    assert (case.name, case.group, case.recipe) == ("a <- b", "pairs", "default")
    assert case.fixed_mask is None


def test_tabs_absolute_paths_and_empty_cells(images):
    lines = (
        "name\tfixed\tmoving\tfixed_mask\tgroup\trecipe",
        f"one\t{images / 'a.nii.gz'}\tb.nii.gz\t\tbrain\tfast",
        "",
        "two\tc.nii.gz\tb.nii.gz\ta.nii.gz\t\t",
    )
    one, two = read_dataset(table(images, *lines, name="x.tsv")).cases
    assert (one.fixed, one.group, one.recipe, one.fixed_mask) == (images / "a.nii.gz", "brain", "fast", None)
    assert (two.name, two.group, two.fixed_mask) == ("two", "x", images / "a.nii.gz")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("name,fixed,moving", "p,a.nii.gz,nowhere.nii.gz"), ("case 'p'", "column 'moving'", "nowhere.nii.gz")),
        (("fixed,moving,fixed_labels", "a.nii.gz,b.nii.gz,c.nii.gz"), ("has fixed_labels but no moving_labels",)),
        (("fixed,moving,moving_landmarks", "a.nii.gz,b.nii.gz,c.nii.gz"), ("no fixed_landmarks",)),
        (("fixed,moving,label", "a.nii.gz,b.nii.gz,c.nii.gz"), ("unknown column 'label'", "fixed_labels")),
        (("fixed,other", "a.nii.gz,b.nii.gz"), ("unknown column",)),
        (("fixed;moving", "a.nii.gz;b.nii.gz"), ("separated by ';'", "commas")),
        (("fixed", "a.nii.gz"), ("needs a column 'moving'",)),
        (("fixed,moving", "a.nii.gz"), ("line 2 has 1 cells",)),
        (("fixed,moving", "a.nii.gz,"), ("line 2 has no moving image",)),
        (("fixed,moving", "a.nii.gz,b.nii.gz", "a.nii.gz,b.nii.gz"), ("2 cases have the name 'a <- b'",)),
        (("fixed,moving",), ("has no cases",)),
    ],
)
def test_what_is_wrong_with_a_table_is_named(images, lines, words):
    path = table(images, *lines)
    with pytest.raises(FileError) as error:
        read_table(path)
    assert str(error.value).startswith(f"{path}: ")
    assert all(word in str(error.value) for word in words)


def test_many_missing_files_are_listed_and_then_counted(images):
    path = table(images, "fixed,moving", *(f"a.nii.gz,{n}.nii.gz" for n in range(14)))
    with pytest.raises(FileError, match=r"9\.nii\.gz does not exist; and 4 more"):
        read_table(path)


def test_a_written_table_reads_back(images):
    first = BenchCase("x", images / "a.nii.gz", images / "b.nii.gz", images / "sub/la.nii.gz", images / "sub/lb.nii.gz")
    cases = (first, BenchCase("y", images / "c.nii.gz", images / "b.nii.gz", group="g", recipe="fast"))
    path = images / "made.csv"
    write_table(cases, path)
    assert "sub/la.nii.gz" in path.read_text(encoding="utf-8") and str(images) not in path.read_text(encoding="utf-8")
    assert [BenchCase.from_dict(case.to_dict()) for case in read_table(path).cases] == [
        BenchCase.from_dict({**first.to_dict(), "group": "made"}),
        cases[1],
    ]


def test_cases_are_chosen_by_pattern(images):
    lines = ("name,fixed,moving,group", "p1,a.nii.gz,b.nii.gz,brain", "p2,a.nii.gz,c.nii.gz,lung")
    dataset = read_table(table(images, *lines))
    assert [case.name for case in dataset.only("br*").cases] == ["p1"]
    assert [case.name for case in dataset.only("p2,p1").cases] == ["p1", "p2"]
    with pytest.raises(InputError, match=r"No case matches 'x'; the dataset pairs has p1, p2\.$"):
        dataset.only("x")


def test_files_of_cases_that_are_not_used_may_be_missing(images):
    lines = ("name,fixed,moving,fixed_labels", "p1,a.nii.gz,b.nii.gz,", "p2,a.nii.gz,c.nii.gz,sub/la.nii.gz")
    dataset = read_dataset(table(images, *lines), check=False)
    check_files(dataset.only("p1").cases, "x")
    with pytest.raises(FileError, match="x: case 'p2' has fixed_labels but no moving_labels"):
        check_files(dataset.cases, "x")


def learn2reg(folder, entries, *files):
    touch(*(folder / file for file in files))
    path = folder / "NLST_dataset.json"
    path.write_text(json.dumps({"name": "NLST", **entries}), encoding="utf-8")
    return path


def pair(number, fixed="0000", moving="0001"):
    return {side: f"./imagesTr/NLST_{number}_{m}.nii.gz" for side, m in (("fixed", fixed), ("moving", moving))}


def names(number, kind, suffix=".nii.gz"):
    return [f"{kind}Tr/NLST_{number}_{modality}{suffix}" for modality in ("0000", "0001")]


def test_a_learn2reg_folder_brings_labels_masks_and_keypoints(tmp_path):
    kinds = ("images", "labels", "masks")
    files = [name for kind in kinds for name in names("0101", kind)] + names("0101", "keypoints", ".csv")
    entries = {
        "registration_val": [pair("0101")],
        "training": [],
        "labels": {"0": {"0": "background", "1": "lung"}, "1": {"2": "rib"}},
    }
    learn2reg(tmp_path, entries, *files)
    dataset = read_dataset(tmp_path)
    (case,) = dataset.cases
    assert (dataset.name, case.name, case.group) == ("NLST", "0101_0000 <- 0101_0001", "NLST")
    assert dataset.label_names == {1: "lung", 2: "rib"}
    assert {column: str(path.relative_to(tmp_path)) for column, path in case.files().items()} == {
        "fixed": "imagesTr/NLST_0101_0000.nii.gz",
        "moving": "imagesTr/NLST_0101_0001.nii.gz",
        "fixed_labels": "labelsTr/NLST_0101_0000.nii.gz",
        "moving_labels": "labelsTr/NLST_0101_0001.nii.gz",
        "fixed_landmarks": "keypointsTr/NLST_0101_0000.csv",
        "moving_landmarks": "keypointsTr/NLST_0101_0001.csv",
        "fixed_mask": "masksTr/NLST_0101_0000.nii.gz",
        "moving_mask": "masksTr/NLST_0101_0001.nii.gz",
    }


def test_test_pairs_are_used_only_if_they_can_be_scored(tmp_path):
    entries = {"registration_test": [pair("0001")], "registration_val": [pair("0002")]}
    images = names("0001", "images") + names("0002", "images")
    path = learn2reg(tmp_path, entries, *images, *names("0002", "labels"))
    assert read_learn2reg(path).cases[0].name.startswith("0002")
    touch(*(tmp_path / name for name in names("0001", "labels")))
    assert read_learn2reg(path).cases[0].name.startswith("0001")


def test_lumir_lists_its_pairs_under_validation(tmp_path):
    files = [f"{kind}Val/LUMIRMRI_{n}_0000.nii.gz" for kind in ("images", "labels") for n in (3454, 3455)]
    pairs = [{"fixed": f"./{files[1]}", "moving": f"./{files[0]}"}]
    path = learn2reg(tmp_path, {"name": "LUMIRMRI", "validation": pairs}, *files)
    (case,) = read_learn2reg(path).cases
    assert case.name == "3455_0000 <- 3454_0000"
    assert case.fixed_labels == tmp_path / files[3]


def test_keypoints_of_an_image_with_several_partners(tmp_path):
    keypoints = [f"keypoints0{n}Tr/NLST_0001_000{m}.csv" for n in (1, 2) for m in (0, n)]
    images = [f"imagesTr/NLST_0001_000{m}.nii.gz" for m in range(3)]
    path = learn2reg(tmp_path, {"registration_val": [pair("0001", "0002", "0000")]}, *images, *keypoints)
    (case,) = read_learn2reg(path).cases
    assert case.fixed_landmarks == tmp_path / "keypoints02Tr/NLST_0001_0002.csv"
    assert case.moving_landmarks == tmp_path / "keypoints02Tr/NLST_0001_0000.csv"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"registration_val": [pair("0009")]}, "column 'fixed': .*NLST_0009_0000.nii.gz does not exist"),
        ({"training": []}, "lists no pairs"),
        ({"registration_val": [{"fixed": "x"}]}, "entry 0 of 'registration_val' is not a pair"),
        ({"registration_val": "none"}, "not a list of pairs"),
    ],
)
def test_what_is_wrong_with_a_learn2reg_json_is_named(tmp_path, entries, words):
    with pytest.raises(FileError, match=words):
        read_dataset(learn2reg(tmp_path, entries))


def test_a_folder_without_a_json_and_an_unknown_file_are_refused(tmp_path):
    with pytest.raises(FileError, match="neither a Learn2Reg dataset JSON nor tables of pairs"):
        read_dataset(tmp_path)
    with pytest.raises(FileError, match="there is no such file or folder"):
        read_dataset(tmp_path / "nothere")
    touch(tmp_path / "pairs.xlsx")
    with pytest.raises(FileError, match="a dataset is a table"):
        read_dataset(tmp_path / "pairs.xlsx")


def test_keypoints_are_voxels_as_nibabel_counts_them(tmp_path, rng):
    affine = np.array([[0, -1.5, 0, 20], [2.0, 0, 0, -7], [0, 0, 3.0, 4], [0, 0, 0, 1.0]])
    nibabel.save(nibabel.Nifti1Image(np.zeros((5, 6, 7), np.float32), affine), tmp_path / "image.nii.gz")
    indices = rng.uniform(0, 4, (6, 3))
    np.savetxt(tmp_path / "points.csv", indices, delimiter=",", fmt="%.9f")
    grid = wf.read_image(tmp_path / "image.nii.gz").grid
    ras = nibabel.affines.apply_affine(affine, indices)
    np.testing.assert_allclose(read_keypoints(tmp_path / "points.csv", grid), ras * (-1, -1, 1), atol=1e-4)


def test_landmarks_in_every_form_are_the_same(tmp_path):
    """One file for both sides, a table of LPS mm per side, and voxel indices per side."""
    table_path = write_example(tmp_path / "ex", pairs=1, shape=(16, 18, 20))
    (case,) = read_table(table_path).cases
    grids = wf.read_image(case.fixed).grid, wf.read_image(case.moving).grid
    points = read_pair(case, *grids)
    both, sides = tmp_path / "both.csv", [tmp_path / "f.csv", tmp_path / "m.csv"]
    rows = np.hstack(points)
    np.savetxt(both, rows, delimiter=",", header="fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z", comments="")
    for path, grid, own in zip(sides, grids, points, strict=True):
        np.savetxt(path, grid.world_to_index(own)[:, ::-1], delimiter=",")
    for files in ({"fixed_landmarks": both}, {"fixed_landmarks": sides[0], "moving_landmarks": sides[1]}):
        again = read_pair(BenchCase("x", case.fixed, case.moving, **files), *grids)
        np.testing.assert_allclose(np.hstack(again), rows, atol=1e-9)


def test_landmarks_that_do_not_correspond_are_refused(tmp_path):
    (tmp_path / "f.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "m.csv").write_text("1,2,3\n")
    grid = wf.Grid.from_spacing((9, 9, 9))
    case = BenchCase("x", tmp_path, tmp_path, fixed_landmarks=tmp_path / "f.csv", moving_landmarks=tmp_path / "m.csv")
    with pytest.raises(FileError, match=r"has 2 points, but .* has 1; landmarks must correspond"):
        read_pair(case, grid, grid)

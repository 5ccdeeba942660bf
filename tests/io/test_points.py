"""Points, landmark pairs and keypoints in CSV files."""

from pathlib import Path

import numpy as np
import pytest

from geometries import GRIDS
from warpfactor.errors import FileError
from warpfactor.io import (
    is_keypoint_file,
    make_table,
    read_keypoints,
    read_landmarks,
    read_points,
    write_points,
)


def test_points_keep_their_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("x,y,z,t,label,comment\n1,2,3,0,7,left eye\n0.1,-5e1,6.25,0,8,\n")
    table = read_points(path)
    np.testing.assert_array_equal(table.points, [[1, 2, 3], [0.1, -50, 6.25]])
    write_points(table, table.points / 3, tmp_path / "moved.csv")
    again = read_points(tmp_path / "moved.csv")
    np.testing.assert_array_equal(again.points, table.points / 3)
    assert [row[3:] for row in again.rows] == [("0", "7", "left eye"), ("0", "8", "")]


def test_ras_points_are_turned_both_ways(tmp_path: Path) -> None:
    (tmp_path / "ras.csv").write_text("label,X,Y,Z\na,1,2,3\n")
    table = read_points(tmp_path / "ras.csv", ras=True)
    np.testing.assert_array_equal(table.points, [[-1, -2, 3]])
    write_points(table, table.points, tmp_path / "again.csv", ras=True)
    np.testing.assert_array_equal(read_points(tmp_path / "again.csv").points, [[1, 2, 3]])


def test_planar_points_have_no_z(tmp_path: Path) -> None:
    (tmp_path / "flat.csv").write_text("x,y\n1,2\n")
    table = read_points(tmp_path / "flat.csv")
    np.testing.assert_array_equal(table.points, [[1, 2, 0]])
    write_points(table, table.points + 1, tmp_path / "moved.csv")
    assert (tmp_path / "moved.csv").read_text(encoding="utf-8") == "x,y\n2.0,3.0\n"


def test_new_points_can_be_written(tmp_path: Path, rng: np.random.Generator) -> None:
    points = rng.normal(size=(4, 3))
    write_points(make_table(points), points, tmp_path / "new.csv")
    np.testing.assert_array_equal(read_points(tmp_path / "new.csv").points, points)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "needs columns named x, y and z, it has a, b; rename"),
        ("x,y,z\n", "holds no points"),
        ("x,y,z\n1,2\n", "line 2 has 2 columns"),
        ("x,y,z\n1,two,3\n", "line 2 has 'two'"),
        ("x,y,z\n1,nan,3\n", "not finite"),
    ],
)
def test_broken_point_files_are_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(text)
    with pytest.raises(FileError, match=words):
        read_points(tmp_path / "points.csv")


def test_landmark_pairs_are_read(tmp_path: Path, data_dir: Path) -> None:
    pairs = read_landmarks(data_dir / "lung" / "landmarks_51_corrected.csv")
    assert pairs.fixed.shape == pairs.moving.shape == (51, 3)
    distance = np.linalg.norm(pairs.fixed - pairs.moving, axis=1)
    assert distance.mean() == pytest.approx(35.3, abs=0.1)
    (tmp_path / "other.csv").write_text("x,y,z\n1,2,3\n")
    with pytest.raises(FileError, match="fixed_x"):
        read_landmarks(tmp_path / "other.csv")


def test_named_landmark_columns_are_read(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z\n1,2,3,4,5,6\n")
    pairs = read_landmarks(tmp_path / "pairs.csv")
    np.testing.assert_array_equal(np.r_[pairs.fixed, pairs.moving], [[1, 2, 3], [4, 5, 6]])


def test_keypoints_are_voxel_indices_with_x_first(tmp_path: Path) -> None:
    (tmp_path / "keypoints.csv").write_text("1,2,3\n0.5,0,4.25\n")
    grid = GRIDS["oblique"]
    found = read_keypoints(tmp_path / "keypoints.csv", grid)
    np.testing.assert_allclose(found, grid.index_to_world([[3, 2, 1], [4.25, 0, 0.5]]))
    assert is_keypoint_file(tmp_path / "keypoints.csv")
    (tmp_path / "points.csv").write_text("x,y,z\n1,2,3\n")
    assert not is_keypoint_file(tmp_path / "points.csv")
    assert not is_keypoint_file(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "no such file"), ("a,b,c\n", "not a list of keypoints"), ("1,2\n", "three"), ("1,2,nan\n", "finite")],
)
def test_broken_keypoint_files_are_named(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "keypoints.csv").write_text(text)
    with pytest.raises(FileError, match=rf"keypoints\.csv: .*{words}"):
        read_keypoints(tmp_path / "keypoints.csv", GRIDS["lps"])

"""Every command does its work, through files, in process; progress, JSON, exit codes."""

import csv
import gzip
import json

import numba
import numpy as np
import pytest
import SimpleITK
import torch
import typer
from typer.testing import CliRunner

import warpfactor as wf
from small import GRID, QUICK_OPTIONS, pair, write_pair
from warpfactor.cli import app as cli
from warpfactor.cli import demo, live
from warpfactor.recipebook.files import write_recipe
from warpfactor.registration import result as result_module

RUNNER = CliRunner()
QUICK_LINEAR = {"linear.levels": [2], "linear.iterations": [20]}
QUICK_DEMO = {**QUICK_LINEAR, "deformable.levels": [2, 1], "deformable.iterations": [20, 8]}


def run(*arguments, code=0):
    result = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def images(folder):
    return folder / "fixed.nii.gz", folder / "moving.nii.gz"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def result(files, tmp_path_factory):
    """The result folder of a registration, and what its command printed."""
    folder = tmp_path_factory.mktemp("results") / "out"
    labels = ("--moving-labels", files / "moving_labels.nii.gz", "--labels", files / "fixed_labels.nii.gz")
    done = run("register", *images(files), "-o", folder, *QUICK_OPTIONS, *labels)
    return folder, done


def test_register_leaves_a_whole_result(result, files):
    folder, done = result
    assert {path.name for path in folder.iterdir()} == {
        "warped.nii.gz",
        "warped_labels.nii.gz",
        "0GenericAffine.mat",
        "1Warp.nii.gz",
        "1InverseWarp.nii.gz",
        "report.html",
        "result.json",
    }
    entries = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    names = ("Affine", "Likeness", "Warp", "Labels", "Written", "Status", "Verdict")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert tuple(lines) == names
    assert lines["Likeness"].startswith("affine LNCC cost 0.")
    assert "no folds" in lines["Warp"]
    assert lines["Labels"].startswith("mean Dice ")
    assert lines["Written"].startswith(f"to {folder} after ")
    assert lines["Status"] == entries["status"]
    assert "deformable" in done.stderr
    assert entries["labels"]["dice_mean_after"] > entries["labels"]["dice_mean_before"]
    assert entries["figures"]["inverse_consistency_fixed_to_moving_to_fixed_vox"]["mean"] < 0.1
    assert entries["fixed"]["name"] == "fixed.nii.gz"
    assert {"torch", "numba", "warpfactor"} <= entries["versions"].keys()
    assert entries["seconds"]["total"] > 0
    assert entries["peak_memory_mb"] > 10


def test_register_again_from_the_result_gives_the_same_files(result, files, tmp_path):
    folder, _ = result
    run(
        "register",
        *images(files),
        "-o",
        tmp_path / "out",
        "--recipe",
        folder / "result.json",
        "-q",
    )
    for name in ("1Warp.nii.gz", "1InverseWarp.nii.gz", "warped.nii.gz"):
        first, second = (wf.io.images.load_sitk(place / name) for place in (folder, tmp_path / "out"))
        arrays = [wf.io.images.itk.sitk.GetArrayFromImage(part) for part in (first, second)]
        assert np.array_equal(*arrays)


def test_register_takes_masks_channels_initial_and_settings(result, files, tmp_path):
    folder, _ = result
    done = run(
        "register",
        *images(files),
        "-o",
        tmp_path / "deep" / "out",
        *("--fixed-mask", files / "mask.nii.gz", "--moving-mask", files / "mask.nii.gz"),
        *("--fixed-channel", files / "fixed_labels.nii.gz", "--moving-channel", files / "moving_labels.nii.gz"),
        *("--channel-weights", "1,0.2", "--initial", folder / "0GenericAffine.mat", "--threads", "1", "--seed", "5"),
        *QUICK_OPTIONS,
        *("--set", "deformable.metric=mse", "--set", "deformable.sigma_grad=1.25", "--outside", "-1"),
        "--quiet",
    )
    assert done.output == ""
    entries = json.loads((tmp_path / "deep" / "out" / "result.json").read_text(encoding="utf-8"))
    assert entries["recipe"]["deformable"]["metric"]["name"] == "mse"
    assert entries["recipe"]["deformable"]["sigma_grad"] == 1.25
    assert entries["recipe"]["deformable"]["channel_weights"] == [1.0, 0.2]
    assert entries["stages"][0]["start"] == "given"
    assert (entries["threads"], entries["seed"]) == (1, 5)


def test_json_lines_are_json(files, tmp_path):
    done = run("register", *images(files), "-o", tmp_path / "out", *QUICK_OPTIONS, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["event"] for line in lines} == {"iteration", "result"}
    assert lines[-1]["output"] == str(tmp_path / "out")
    assert {"stage", "level", "cost", "done"} <= lines[0].keys()


def test_force_replaces_an_earlier_result(files, tmp_path):
    arguments = ("register", *images(files), "-o", tmp_path / "out", "-q")
    run(*arguments, *QUICK_OPTIONS)
    done = run(*arguments, *QUICK_OPTIONS, code=2)
    assert "not empty" in done.stderr
    rigid = ("--recipe", "rigid", *QUICK_OPTIONS[:6], "--force")
    run(*arguments, *rigid)
    assert not (tmp_path / "out" / "1Warp.nii.gz").exists()


def test_apply_gives_the_warped_image(result, files, tmp_path):
    folder, _ = result
    run("apply", files / "moving.nii.gz", "-o", tmp_path / "a.nii.gz", "--result", folder)
    lists = ("-t", folder / "1Warp.nii.gz", "-t", folder / "0GenericAffine.mat")
    run("apply", files / "moving.nii.gz", "-o", tmp_path / "b.nii.gz", *lists, "-r", files / "fixed.nii.gz", "-q")
    warped = wf.read_image(folder / "warped.nii.gz").data
    for name in ("a.nii.gz", "b.nii.gz"):
        assert torch.allclose(wf.read_image(tmp_path / name).data, warped, atol=1e-4)


def test_a_picture_of_eight_bits_stays_one(tmp_path):
    """A spline overshoots beyond 255."""
    board = np.kron(np.indices((6, 6)).sum(0) % 2, np.ones((4, 4))).astype(np.uint8) * 255
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(board), str(tmp_path / "board.png"))
    shift = np.eye(4)
    shift[:2, 3] = 0.4, 0.3
    wf.write_transform(wf.Affine(shift, dimension=2), tmp_path / "a.mat")
    moved, picture = tmp_path / "moved.png", tmp_path / "board.png"
    run("apply", picture, "-t", tmp_path / "a.mat", "-r", picture, "-o", moved, "-n", "bspline")
    image = SimpleITK.ReadImage(str(moved))
    assert image.GetPixelID() == SimpleITK.sitkUInt8
    assert SimpleITK.GetArrayFromImage(image).max() == 255
    assert SimpleITK.GetArrayFromImage(image).min() == 0


def test_apply_carries_labels_and_series_both_ways(result, files, tmp_path):
    folder, _ = result
    run("apply", files / "moving_labels.nii.gz", "-o", tmp_path / "labels.nii.gz", "--labels", "--result", folder)
    carried = wf.read_labels(tmp_path / "labels.nii.gz").data
    assert torch.equal(carried, wf.read_labels(folder / "warped_labels.nii.gz").data)
    volume = wf.read_image(files / "fixed.nii.gz")
    wf.io.write_series([volume, volume], tmp_path / "series.nii.gz", step=2.0)
    moved = tmp_path / "moved.nii.gz"
    done = run("apply", tmp_path / "series.nii.gz", "-o", moved, "--to", "moving", "--result", folder)
    assert "2 volumes in moving space" in done.stdout
    series = wf.io.read_series(moved)
    run("apply", files / "fixed.nii.gz", "-o", tmp_path / "one.nii.gz", "--to", "moving", "--result", folder)
    assert (len(series), series.step) == (2, 2.0)
    assert torch.equal(series[1].data, wf.read_image(tmp_path / "one.nii.gz").data)


def test_apply_warns_before_it_mixes_labels(result, files, tmp_path):
    folder, _ = result
    labels, picture = files / "moving_labels.nii.gz", tmp_path / "picture.nii.gz"
    numbers = wf.read_image(files / "moving.nii.gz")
    wf.write_image(wf.Image((1000 * numbers.data).to(torch.int32), numbers.grid), picture)
    for number, (source, options, lines) in enumerate(
        [(labels, (), 1), (labels, ("--labels",), 0), (labels, ("-n", "nearest"), 0), (picture, (), 0)]
    ):
        done = run("apply", source, "-o", tmp_path / f"{number}.nii.gz", "--result", folder, *options)
        assert len([line for line in done.stderr.splitlines() if "compiling" not in line]) == lines
        assert not lines or done.stderr.startswith(f"warpfactor: warning: {labels}: looks like a label map")


def test_points_go_where_their_image_goes(result, tmp_path):
    folder, _ = result
    points = GRID.index_to_world([[9, 10, 11], [12, 12, 12]])
    wf.io.write_points(wf.io.make_table(points), points, tmp_path / "moving.csv")
    run("apply", tmp_path / "moving.csv", "-o", tmp_path / "fixed.csv", "--result", folder)
    run("apply", tmp_path / "fixed.csv", "-o", tmp_path / "back.csv", "--result", folder, "--to", "moving")
    saved = wf.read_result(folder)
    assert np.allclose(wf.io.read_points(tmp_path / "fixed.csv").points, saved.inverse.map_points(points))
    assert np.abs(wf.io.read_points(tmp_path / "back.csv").points - points).max() < 0.1


def test_invert_and_compose_write_transforms(result, tmp_path, files):
    folder, _ = result
    point = GRID.index_to_world([[10, 11, 12]])
    saved = wf.read_result(folder)
    run("compose", "-o", tmp_path / "all.h5", "--result", folder)
    there = wf.read_transform(tmp_path / "all.h5").map_points(point)
    assert np.allclose(there, saved.transform.map_points(point), atol=1e-4)
    run("compose", "-o", tmp_path / "all.nii.gz", "--result", folder)
    assert np.allclose(wf.read_transform(tmp_path / "all.nii.gz").map_points(point), there, atol=1e-3)
    done = run("invert", "-o", tmp_path / "back.h5", "-t", tmp_path / "all.h5")
    assert "inverse error, moving to fixed and back: " in done.stdout
    assert np.allclose(wf.read_transform(tmp_path / "back.h5").map_points(there), point, atol=0.1)
    run("invert", "-o", tmp_path / "affine.mat", "-t", folder / "0GenericAffine.mat", "-q")
    done = run("invert", "-o", tmp_path / "back.nii.gz", "--result", folder)
    own = saved.entries["figures"]["inverse_consistency_fixed_to_moving_to_fixed_vox"]
    assert f"fixed to moving and back: {own['mean']:.3f} voxels (" in done.stdout, "what `register` said of it"
    assert np.allclose(wf.read_transform(tmp_path / "back.nii.gz").map_points(there), point, atol=0.1)


def test_jacobian_maps_the_warp(result, tmp_path):
    folder, _ = result
    done = run("jacobian", "-o", tmp_path / "j.nii.gz", "--result", folder)
    assert "0 folded voxels" in done.stdout
    plain = wf.read_image(tmp_path / "j.nii.gz").data
    assert torch.allclose(plain, wf.read_result(folder).warp.jacobian().data, atol=1e-4)
    run("jacobian", "-o", tmp_path / "log.nii.gz", "--result", folder, "--log", "-q")
    assert torch.allclose(wf.read_image(tmp_path / "log.nii.gz").data, plain.log(), atol=1e-4)
    run("jacobian", "-o", tmp_path / "total.nii.gz", "--result", folder, "--total", "-q")
    done = run("jacobian", "-o", tmp_path / "none.nii.gz", "-t", folder / "0GenericAffine.mat", code=2)
    assert "no warp" in done.stderr


def test_evaluate_scores_labels_landmarks_and_folds(result, files, tmp_path):
    folder, _ = result
    truth = pair().displacement
    index = torch.tensor([[8, 9, 10], [14, 12, 11]])
    moved = index + torch.stack([truth[:, z, y, x] for z, y, x in index.tolist()])
    fixed, moving = GRID.index_to_world(index.numpy()), GRID.index_to_world(moved.numpy())
    with (tmp_path / "landmarks.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz"])
        writer.writerows(np.hstack([fixed, moving]).tolist())
    labels = ("--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    arguments = ("evaluate", "--result", folder, *labels, "--landmarks", tmp_path / "landmarks.csv")
    table = run(*arguments).stdout
    assert "hausdorff95_mm" in table
    found = json.loads(run(*arguments, "--format", "json").stdout)
    saved = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert found["dice_mean"] == pytest.approx(saved["labels"]["dice_mean_after"], abs=1e-3)
    assert found["folded_voxels"] == 0
    assert "3" in found["dice_per_label"]
    assert found["landmark_error_after_mean_mm"] < found["landmark_error_before_mean_mm"]
    run(*arguments, "--format", "table", "-o", tmp_path / "t.txt")
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == table
    run(*arguments, "-o", tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text(encoding="utf-8")) == found
    run(*arguments, "--format", "csv", "-o", tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["figure"] for row in rows} >= {"dice", "dice_mean", "jacobian_minimum"}


def test_evaluate_compares_two_maps_without_a_transform(files):
    same = files / "fixed_labels.nii.gz"
    found = json.loads(run("evaluate", "--fixed-labels", same, "--moving-labels", same, "--format", "json").stdout)
    assert found["dice_mean"] == 1
    assert found["hausdorff95_mean_mm"] == 0


def test_recipes_are_listed_and_shown(tmp_path):
    for arguments in (("recipes",), ("recipes", "list")):
        assert "multimodal" in run(*arguments).stdout
    text = run("recipes", "show", "paper").stdout
    (tmp_path / "mine.toml").write_text(text)
    assert wf.recipe(tmp_path / "mine.toml") == wf.recipe("paper")
    assert json.loads(run("recipes", "show", "fast", "--format", "json").stdout) == wf.recipe("fast").to_dict()
    assert "did you mean" in run("recipes", "show", "fats", code=2).stderr
    assert "toml or json" in run("recipes", "show", "fast", "--format", "xml", code=2).stderr


def commands(group, path=()):
    """Every command with its words, those of groups as well."""
    for name, command in group.commands.items():
        yield (*path, name), command
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else ()


def test_help_names_values_not_types():
    for words, command in commands(typer.main.get_command(cli.app)):
        text = run(*words, "--help").stdout
        assert "list[" not in text
        assert "{" not in text
        for option in command.params:
            flag = getattr(option, "is_flag", False)
            assert flag or (option.metavar and option.metavar == option.metavar.upper()), (words, option.name)
    assert "Usage: warpfactor register [OPTIONS] FIXED MOVING" in run("register", "-h").stdout.replace(
        "root", "warpfactor"
    )
    assert "Missing argument 'FIXED'" in run("register", code=2).stderr


def test_info_says_what_a_bug_report_needs():
    assert json.loads(run("info", "--json").stdout)["warpfactor"] == wf.__version__
    assert "threads" in run("info").stdout
    assert wf.__version__ in run("--version").stdout


@pytest.mark.parametrize("shape", ["24,26,24", "1,40,44"])
def test_the_demo_comes_near_the_truth(tmp_path, shape):
    write_recipe(wf.recipe("fast").replace(QUICK_DEMO), tmp_path / "quick.json")
    output = tmp_path / "demo"
    done = run("demo", "--output", output, "--shape", shape, "--recipe", tmp_path / "quick.json")
    errors = [
        float(line.split("true error")[1].split()[0]) for line in done.stdout.splitlines() if "true error" in line
    ]
    assert errors[0] > 10 > errors[1] > errors[2]
    assert {path.name for path in output.iterdir()} >= {demo.FIXED, demo.MOVING, demo.RESULT}
    again = run("demo", "--output", output, "--shape", shape, "--recipe", tmp_path / "quick.json", code=2)
    assert "not empty" in again.stderr


def test_the_demo_can_be_run_again_by_force(tmp_path):
    write_recipe(wf.recipe("rigid").replace(QUICK_LINEAR), tmp_path / "quick.json")
    for _ in range(2):
        run(
            "demo", "-o", tmp_path / "demo", "--shape", "16,16,16", "--recipe", tmp_path / "quick.json", "--force", "-q"
        )
    assert (tmp_path / "demo" / "result" / "result.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo", "quick.json"]


def test_ctrl_c_leaves_nothing(files, tmp_path, monkeypatch):
    def stop(self, update):
        if update.stage == "deformable":
            raise KeyboardInterrupt

    monkeypatch.setattr(live.Lines, "update", stop)
    arguments = (
        "register",
        *images(files),
        "-o",
        tmp_path / "a" / "out",
        *QUICK_OPTIONS,
    )
    done = run(*arguments, code=130)
    assert done.stderr.splitlines()[-1] == "warpfactor: Interrupted; nothing was written."
    assert not list(tmp_path.iterdir())
    run(*arguments, "--keep-interrupted", code=130)
    assert json.loads((tmp_path / "a" / "out" / "result.json").read_text(encoding="utf-8"))["interrupted"]


def test_ctrl_c_while_writing_leaves_nothing(files, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(result_module, "write_transform", stop)
    run("register", *images(files), "-o", tmp_path / "out", *QUICK_OPTIONS, code=130)
    assert not list(tmp_path.iterdir())


def test_an_error_of_ours_is_told_apart(monkeypatch, capsys):
    def fail():
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(wf, "recipes", fail)
    with pytest.raises(SystemExit) as caught:
        cli.main(["recipes"])
    assert caught.value.code == 1
    assert "please report it" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        cli.main(["recipes", "show", "nothing"])
    assert caught.value.code == 2


def test_nan_in_a_file_is_counted(files, tmp_path):
    data = wf.read_image(files / "fixed.nii.gz").data.clone()
    data[0, 3, 4, 5:9] = torch.nan
    wf.write_image(wf.Image(data, GRID), tmp_path / "holes.nii.gz")
    done = run("register", tmp_path / "holes.nii.gz", files / "moving.nii.gz", "-o", tmp_path / "out", *QUICK_OPTIONS)
    assert "4 voxels were NaN or infinite" in done.stdout
    assert json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))["fixed"]["nonfinite_voxels"] == 4


def test_a_warning_is_one_line(files, tmp_path):
    nifti = (files / "moving.nii.gz").read_bytes()
    raw = bytearray(gzip.decompress(nifti))
    raw[280:284] = np.float32(1.9).tobytes()
    (tmp_path / "two_forms.nii").write_bytes(raw)
    done = run("register", files / "fixed.nii.gz", tmp_path / "two_forms.nii", "-o", tmp_path / "out", *QUICK_OPTIONS)
    assert "warning" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("apply", "{moving}", "-o", "{out}.nii.gz"),
        ("invert", "-o", "{out}.h5"),
        ("compose", "-o", "{out}.h5"),
        ("jacobian", "-o", "{out}.nii.gz"),
        ("evaluate", "-o", "{out}.csv"),
    ],
)
def test_every_command_heeds_threads(command, files, result, tmp_path, monkeypatch):
    """For as long as it runs, and a number that makes no sense is refused."""
    before, seen = numba.get_num_threads(), []
    read = wf.read_result

    def watched(folder):
        seen.append((numba.get_num_threads(), torch.get_num_threads()))
        return read(folder)

    monkeypatch.setattr(wf, "read_result", watched)
    arguments = [part.format(moving=images(files)[1], out=tmp_path / "out") for part in command]
    run(*arguments, "--result", result[0], "--threads", "1")
    assert seen == [(1, 1)]
    assert numba.get_num_threads() == before
    done = run(*arguments, "--result", result[0], "--threads", "0", code=2)
    assert "0 threads cannot be used" in done.output

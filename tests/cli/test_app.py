"""Help, errors and exit codes of all commands, and the small commands: recipes, info, demo, report, summary."""

import json
import signal

import numba
import pytest
import torch
import typer

import warpfactor as wf
from commands import run
from small import GRID
from warpfactor.cli import app as cli
from warpfactor.cli import demo
from warpfactor.recipebook.files import write_recipe

QUICK_LINEAR = {"linear.levels": [2], "linear.iterations": [20]}
QUICK_DEMO = {**QUICK_LINEAR, "deformable.levels": [2, 1], "deformable.iterations": [20, 8]}


def commands(group, path=()):
    """Every command with its words, those of groups as well."""
    for name, command in group.commands.items():
        yield (*path, name), command
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else ()


def test_help_names_values_not_types():
    for words, command in commands(typer.main.get_command(cli.app)):
        text = run(*words, "--help").stdout
        assert "list[" not in text
        assert "...." not in text, words
        assert "{" not in text.replace("{name}", "")  # a part of file names that `cohort` fills in
        for option in command.params:
            flag = getattr(option, "is_flag", False)
            assert flag or (option.metavar and option.metavar == option.metavar.upper()), (words, option.name)
    usage = run("register", "-h").stdout.replace("root", "warpfactor")
    assert "Usage: warpfactor register [OPTIONS] FIXED MOVING" in usage
    assert "Missing argument 'FIXED'" in run("register", code=2).stderr


def test_help_texts_are_sentences():
    """Every option has a help text that begins with a capital letter or a value and ends with a full stop."""
    for words, command in commands(typer.main.get_command(cli.app)):
        if words[0] in ("bench", "datasets"):
            continue
        for option in command.params:
            text = option.help or ""
            assert text.endswith("."), (words, option.name, text)


def test_an_internal_error_is_told_apart(monkeypatch, capsys):
    def fail():
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(wf, "recipes", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its handlers
    with pytest.raises(SystemExit) as caught:
        cli.main(["recipes"])
    assert caught.value.code == 1
    assert "please report it" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        cli.main(["recipes", "show", "nothing"])
    assert caught.value.code == 2


def test_recipes_are_listed_and_shown(tmp_path):
    for arguments in (("recipes",), ("recipes", "list")):
        assert "multimodal" in run(*arguments).stdout
    text = run("recipes", "show", "paper").stdout
    (tmp_path / "mine.toml").write_text(text)
    assert wf.recipe(tmp_path / "mine.toml") == wf.recipe("paper")
    assert json.loads(run("recipes", "show", "fast", "--format", "json").stdout) == wf.recipe("fast").to_dict()
    assert "did you mean" in run("recipes", "show", "fats", code=2).stderr
    assert "toml or json" in run("recipes", "show", "fast", "--format", "xml", code=2).stderr


def test_info_says_what_a_bug_report_needs():
    assert json.loads(run("info", "--json").stdout)["warpfactor"] == wf.__version__
    assert "threads" in run("info").stdout
    assert wf.__version__ in run("--version").stdout


@pytest.mark.parametrize("shape", ["24,26,24", "1,40,44"])
def test_the_demo_comes_near_the_truth(tmp_path, shape):
    write_recipe(wf.recipe("fast").replace(QUICK_DEMO), tmp_path / "quick.json")
    output = tmp_path / "demo"
    arguments = ("demo", "--output", output, "--shape", shape, "--recipe", tmp_path / "quick.json")
    done = run(*arguments)
    errors = [float(line.split("error")[1].split()[0]) for line in done.stdout.splitlines() if " error " in line]
    assert errors[-3] > 10 > errors[-2] > errors[-1]
    assert {path.name for path in output.iterdir()} >= {demo.FIXED, demo.MOVING, demo.RESULT}
    saved = json.loads((output / demo.RESULT / "result.json").read_text(encoding="utf-8"))
    assert saved["inputs"]["fixed"]["path"] == str(output / demo.FIXED)
    assert "not empty" in run(*arguments, code=2).stderr


def test_the_demo_can_be_run_again_by_force(tmp_path):
    write_recipe(wf.recipe("rigid").replace(QUICK_LINEAR), tmp_path / "quick.json")
    options = ("--shape", "16,16,16", "--recipe", tmp_path / "quick.json", "--force", "-q", "--no-report")
    for _ in range(2):
        run("demo", "-o", tmp_path / "demo", *options)
    assert (tmp_path / "demo" / "result" / "result.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo", "quick.json"]


def test_a_report_says_in_what_a_given_image_differs(images, result, tmp_path):
    other = wf.Image(wf.read_image(images[0]).data, wf.Grid.from_spacing(GRID.shape, 1.0))
    wf.write_image(other, tmp_path / "other.nii.gz")
    done = run("report", result, "--fixed", tmp_path / "other.nii.gz", code=2)
    assert "other.nii.gz: is not the fixed image of this result" in done.stderr
    assert "it has 24 x 26 x 24 voxels of 1 x 1 x 1 mm" in done.stderr
    assert "the result 24 x 26 x 24 voxels of 1.5 x 1.5 x 1.5 mm" in done.stderr
    done = run("report", result, "--fixed", tmp_path / "nowhere.nii.gz", code=2)
    assert "there is no such file" in done.stderr
    assert "one folder" in run("report", result, result, "--fixed", images[0], code=2).stderr


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
def test_every_command_limits_threads(command, images, result, tmp_path, monkeypatch, all_threads):
    """While it runs; a number that makes no sense is refused."""
    before, seen = numba.get_num_threads(), []
    read = wf.read_result

    def watched(folder, **options):
        seen.append((numba.get_num_threads(), torch.get_num_threads()))
        return read(folder, **options)

    monkeypatch.setattr(wf, "read_result", watched)
    arguments = [part.format(moving=images[1], out=tmp_path / "out") for part in command]
    run(*arguments, "--result", result, "--threads", "1")
    assert seen == [(1, 1)]
    assert numba.get_num_threads() == before
    assert "at least 1, not 0" in run(*arguments, "--result", result, "--threads", "0", code=2).output

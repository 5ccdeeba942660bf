"""What is compiled before a first run is what the run needs, no less and for the default recipe no more."""

import json
import subprocess
import sys
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from small import QUICK_OPTIONS, write_pair
from warpfactor.cli import ahead, app

# Kernels that are asked for in a process of its own, in the order of two jobs; each is asked for once.
SCRIPT = """
import json, sys
from warpfactor.cli import ahead
from warpfactor.cli.app import app
from warpfactor.kernels.numba._compile import cache
asked, load = [], cache.KernelCache.load_overload
def noted(self, signature, target):
    asked.append(f"{self._name} {signature}")
    return load(self, signature, target)
cache.KernelCache.load_overload = noted
chosen = []
import warpfactor.cli.register as register
register.compile_ahead = lambda recipe, **rest: chosen.append((recipe, rest))
def run():
    app(sys.argv[2:], standalone_mode=False)
def prepare():
    recipe, rest = chosen[0]
    choice = {"recipe": recipe.for_images(planar=rest["planar"]).to_dict(), **rest}
    for _, part in ahead.parts(choice):
        part()
def both(recipe, **rest):
    chosen.append((recipe, rest))
    prepare()
    asked.clear()
if sys.argv[1] == "missing":
    register.compile_ahead = both
    run()
else:
    run()
    asked.clear()
    prepare()
print(json.dumps(asked))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("pair"))


def asked(what, files, output, *options):
    """Kernels that are `missing` in what is prepared, or `needless`."""
    images = [str(files / f"{name}.nii.gz") for name in ("fixed", "moving")]
    command = ["register", *images, "-o", str(output), "--quiet", *options]
    done = subprocess.run([sys.executable, "-c", SCRIPT, what, *command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_the_default_needs_all_of_it_and_no_more(files, tmp_path):
    assert asked("missing", files, tmp_path / "a", *QUICK_OPTIONS) == []
    assert asked("needless", files, tmp_path / "b", *QUICK_OPTIONS) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--recipe", "multimodal", *QUICK_OPTIONS),
        ("--recipe", "rigid", *QUICK_OPTIONS[:6]),
        ("--set", "deformable.storage=int16", "--set", "deformable.descent=tile", *QUICK_OPTIONS),
    ],
    ids=lambda options: options[1],
)
def test_other_choices_miss_nothing(options, files, tmp_path):
    mask = ("--fixed-mask", str(files / "mask.nii.gz"), "--moving-mask", str(files / "mask.nii.gz"))
    assert asked("missing", files, tmp_path / "out", *options, *mask) == []


@pytest.mark.parametrize("command", ["register", "demo"])
def test_a_first_run_shares_the_work(command, files, tmp_path, monkeypatch):
    told = []

    def share(parts, choice, *, threads):
        told.append((parts, choice["planar"], threads))
        return nullcontext(False)

    monkeypatch.setattr(ahead, "second_process", share)
    images = [str(files / f"{name}.nii.gz") for name in ("fixed", "moving")]
    if command == "register":
        arguments = [*images, *QUICK_OPTIONS, "--threads", "2"]
    else:
        arguments = ["--shape", "1,24,24", "--recipe", "rigid"]
    done = CliRunner().invoke(app.app, [command, "-o", str(tmp_path / "out"), *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    assert told == [("warpfactor.cli.ahead:parts", command == "demo", 2 if command == "register" else None)]


def test_other_kernels_are_not_compiled_for_the_reference(files, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "second_process", None)
    images = [str(files / f"{name}.nii.gz") for name in ("fixed", "moving")]
    options = ["--backend", "reference", "--recipe", "rigid", *QUICK_OPTIONS[:6], "--no-report"]
    done = CliRunner().invoke(app.app, ["register", *images, "-o", str(tmp_path / "out"), *options])
    assert done.exit_code == 0

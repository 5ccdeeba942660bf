"""What README.md, CONTRIBUTING.md and docs/ say is true: their code runs, on small stand-ins for the files it names.

Python blocks are executed. In shell blocks the lines that call `warpfactor` are run in process. Every block has a
fresh folder with all stand-ins, and the result folder `out` unless the block makes that itself.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from small import GRID, SHAPE, image, pair, write_pair
from test_layers import LAYERS
from warpfactor.cli import app as cli
from warpfactor.register.recipe_data import RECIPES

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKES_OUT = re.compile(r"-o out\b|save\(\"out\"\)")
NOT_OURS = {"make", "git", "antsApplyTransforms", "antsApplyTransformsToPoints"}
RUNNER = CliRunner()


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language and its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 2
            found.append(Block(page, line, fence[1], fence[2]))
    return [block for block in found if block.language == language]


def commands(block: Block) -> list[str]:
    """The lines of a shell block, continued ones joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def quick(recipe: wf.Recipe) -> wf.Recipe:
    """The recipe with as few iterations as possible."""
    changes: dict[str, Any] = {}
    if recipe.linear:
        changes |= {"linear.starts": ["identity"], "linear.iterations": [1] * len(recipe.linear[0].levels)}
    if recipe.deformable is not None:
        changes |= {"deformable.iterations": [2] * len(recipe.deformable.levels)}
    return recipe.replace(changes)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small file for every name that the pages use, and the result folder `out`."""
    folder: Path = write_pair(tmp_path_factory.mktemp("files"))
    made = pair(contrast="t2")
    for name in ("fixed_mask", "moving_mask"):
        shutil.copy(folder / "mask.nii.gz", folder / f"{name}.nii.gz")
    shutil.copy(folder / "moving_labels.nii.gz", folder / "labels.nii.gz")
    for name in ("fixed", "moving"):
        shutil.copy(folder / f"{name}.nii.gz", folder / f"t1_{name}.nii.gz")
        wf.write_image(image(getattr(made, name)), folder / f"t2_{name}.nii.gz")
        flat = getattr(pair((1, 32, 28)), name)[0].numpy()
        wf.write_image(wf.Image.from_array((200 * flat).clip(0, 255).round()), folder / f"{name}.png")
    wf.io.write_series([image(made.moving), image(made.moving)], folder / "series.nii.gz")
    write_points(folder)
    found = wf.register(folder / "fixed.nii.gz", folder / "moving.nii.gz", recipe=quick(wf.recipe("default")))
    found.save(folder / "out")
    shutil.copy(folder / "out" / "0GenericAffine.mat", folder / "affine.mat")
    for name in ("0GenericAffine.mat", "1Warp.nii.gz", "1InverseWarp.nii.gz"):
        shutil.copy(folder / "out" / name, folder / f"ants_{name}")
    return folder


def write_points(folder: Path) -> None:
    index = np.random.default_rng(1).uniform(6, np.array(SHAPE) - 7, (5, 3))
    points = GRID.index_to_world(index)
    for name in ("fixed_points", "moving_points"):
        wf.io.write_points(wf.io.make_table(points), points, folder / f"{name}.csv")
    header = ",".join(f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz")
    np.savetxt(folder / "landmarks.csv", np.c_[points, points + 1.0], delimiter=",", header=header, comments="")


@pytest.fixture
def place(stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the stand-ins as working folder, and recipes that take a fraction of a second."""
    folder = tmp_path / "here"
    shutil.copytree(stand_ins, folder)
    monkeypatch.chdir(folder)
    for name, recipe in list(RECIPES.items()):
        monkeypatch.setitem(RECIPES, name, quick(recipe))
    yield folder


def run_command(line: str) -> None:
    """Run one line of a shell block, if it is ours; `> file` is understood."""
    words = shlex.split(line, comments=True)
    if words[0] in NOT_OURS:
        return
    assert words[0] == "warpfactor", f"a shell block calls {words[0]}, which no test knows"
    target = words[words.index(">") + 1] if ">" in words else None
    arguments = words[1 : words.index(">")] if target else words[1:]
    done = RUNNER.invoke(cli.app, arguments, catch_exceptions=False)
    if "cuda" in arguments and not torch.cuda.is_available():
        assert done.exit_code == 2
        assert "Device 'cuda' cannot be used here" in done.stderr
        return
    assert done.exit_code == 0, f"{line}\n{done.output}"
    if target:
        Path(target).write_text(done.stdout, encoding="utf-8")
    for option, name in itertools.pairwise(arguments):
        assert option not in ("-o", "--output") or Path(name).exists()


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_python_runs(block: Block, place: Path) -> None:
    if MAKES_OUT.search(block.text):
        shutil.rmtree(place / "out")
    exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.place)
def test_commands_run(block: Block, place: Path) -> None:
    for line in commands(block):
        if MAKES_OUT.search(line):
            shutil.rmtree(place / "out", ignore_errors=True)
        run_command(line)


def test_every_block_has_a_known_language() -> None:
    pattern = re.compile(r"^```(\w*)$", re.MULTILINE)
    opened = {word for page in PAGES for word in pattern.findall(page.read_text(encoding="utf-8"))[::2]}
    assert opened <= {"python", "sh", "text"}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line.split() for block in blocks("sh") for line in commands(block) if line.startswith("make ")]
    assert lines
    assert all(re.search(rf"^{words[1]}:", makefile, re.MULTILINE) for words in lines)


def test_the_lines_for_ants_do_what_is_said(place: Path) -> None:
    ants = pytest.importorskip("ants")
    lines = [line for block in blocks("sh") for line in commands(block) if line.startswith("antsApplyTransforms ")]
    saved = wf.read_result("out")
    expected = {
        "moving_on_fixed.nii.gz": wf.read_image("out/warped.nii.gz"),
        "fixed_on_moving.nii.gz": saved.inverse.resample(wf.read_image("fixed.nii.gz"), saved.moving_grid),
    }
    assert len(lines) == len(expected)
    for line in lines:
        name, theirs = _apply_by_ants(ants, line)
        close = (wf.io.from_any(theirs).data - expected[name].data).abs() < 1e-3
        assert close.float().mean() > 0.97  # float32 headers decide which points of the rim are inside


def _apply_by_ants(ants: Any, line: str) -> tuple[str, Any]:
    """The name of the output and the image that ANTs makes for a line of antsApplyTransforms."""
    words = shlex.split(line)
    pairs = list(zip(words[1::2], words[2::2], strict=True))
    option = dict(pairs)
    specs = [value for name, value in pairs if name == "-t"]
    made = ants.apply_transforms(
        ants.image_read(option["-r"]),
        ants.image_read(option["-i"]),
        [spec.strip("[]").split(",")[0] for spec in specs],
        whichtoinvert=[spec.endswith(",1]") for spec in specs],
        interpolator="linear",
    )
    return option["-o"], made


def test_every_key_of_a_result_is_explained(place: Path) -> None:
    run_command(
        "warpfactor register fixed.nii.gz moving.nii.gz -o new --moving-labels moving_labels.nii.gz "
        "--fixed-labels fixed_labels.nii.gz"
    )
    entries = json.loads(Path("new/result.json").read_text(encoding="utf-8"))
    nested = [entries["fixed"], entries["figures"], entries["labels"], *entries["stages"]]
    nested += [stage["history"] for stage in entries["stages"]]
    keys = {*entries, *(key for part in nested for key in part)}
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    missing = [
        key for key in keys if f"`{key}`" not in text and f"`{key.removesuffix('_mm')}_vox`, `..._mm`" not in text
    ]
    assert not missing
    written = {path.name for path in Path("new").iterdir()}
    assert all(f"`{name}`" in text for name in written)


def test_every_layer_is_explained() -> None:
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(f"`{layer}`" in architecture for layer in LAYERS)
    contributing = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    assert ", ".join(LAYERS) in contributing


def test_every_recipe_and_command_is_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    names = [command.name for command in cli.app.registered_commands] + ["recipes"]
    assert all(f"`{name}`" in text for name in [*RECIPES, *names])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(FENCE, "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in _anchors(linked), target


def _anchors(page: Path) -> set[str]:
    """The anchors GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(FENCE, "", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_one_version_everywhere() -> None:
    version = wf.__version__
    for name, line in (
        ("pyproject.toml", f'version = "{version}"'),
        ("CITATION.cff", f"version: {version}"),
        ("CHANGELOG.md", f"## [{version}]"),
        ("README.md", f"warpfactor {version}"),
    ):
        assert line in (ROOT / name).read_text(encoding="utf-8"), name


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "registration.png").stat().st_size < 300_000

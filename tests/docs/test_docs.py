"""What README.md, CONTRIBUTING.md and docs/ show can be done: their code runs, on small stand-ins for its files.

Python blocks are executed. In shell blocks the lines that call `warpfactor` are run in process; loops are unrolled by a
shell first. Every page is run from top to bottom in one fresh folder with all stand-ins; it has the result folder `out`
only if the page does not make that itself.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import stand_ins
import warpfactor as wf
from documents import FENCE, PAGES, ROOT
from warpfactor.cli import app as cli

MAKES_OUT = re.compile(r"-o out\b|save\(\"out\"\)")
NOT_OURS = {"make", "git", "pip", "python3", "source", "antsApplyTransforms", "antsApplyTransformsToPoints"}
ANNOUNCE = 'warpfactor() { printf "%q " warpfactor "$@"; echo; }\n'
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


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = [(text.count("\n", 0, fence.start()) + 2, fence) for fence in FENCE.finditer(text)]
    return [Block(page, line, fence[1], fence[2]) for line, fence in fences if fence[1] in languages]


def commands(block: Block) -> list[str]:
    """The commands of a shell block: continued lines joined, and loops unrolled as they are in the working folder."""
    text = block.text.replace("\\\n", " ")
    if re.search(r"^for ", text, re.MULTILINE):
        text = subprocess.run(["bash", "-c", ANNOUNCE + text], check=True, capture_output=True, text=True).stdout
        assert text, "the loop does nothing"
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@pytest.fixture
def place(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the stand-ins as working folder, and commands that take a fraction of a second."""
    folder = tmp_path / "here"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    stand_ins.hurry(monkeypatch)
    yield folder


def run_command(line: str) -> None:
    """Run one line of a shell block, if it is ours; `> file` is understood."""
    words = shlex.split(line, comments=True)
    if words[0] in NOT_OURS:
        return
    assert words[0] == "warpfactor", f"a shell block calls {words[0]}, which no test knows"
    target = words[words.index(">") + 1] if ">" in words else None
    arguments = words[1 : words.index(">")] if target else words[1:]
    small = ["--shape", "24,28,24"] if arguments[0] == "demo" and "--shape" not in arguments else []
    done = RUNNER.invoke(cli.app, [*arguments, *small], catch_exceptions=False)
    if "cuda" in arguments and not torch.cuda.is_available():
        assert done.exit_code == (1 if "--check-device" in arguments else 2)
        assert "Device 'cuda' cannot be used here" in done.stderr
        return
    assert done.exit_code == 0, f"{line}\n{done.output}"
    if target:
        Path(target).write_text(done.stdout, encoding="utf-8")
    for option, name in itertools.pairwise(arguments):
        assert option not in ("-o", "--output", "--example") or Path(name).exists()


def run_python(block: Block) -> None:
    if "import ants" in block.text and importlib.util.find_spec("ants") is None:
        return
    exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python", "sh")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_runs_from_top_to_bottom(page: Path, place: Path) -> None:
    found = blocks(page, "python", "sh")
    if any(MAKES_OUT.search(block.text) for block in found):
        shutil.rmtree(place / "out")
    for block in found:
        if block.language == "python":
            run_python(block)
        else:
            for line in commands(block):
                run_command(line)


def test_every_block_has_a_known_language() -> None:
    pattern = re.compile(r"^```(\w*)$", re.MULTILINE)
    opened = {word for page in PAGES for word in pattern.findall(page.read_text(encoding="utf-8"))[::2]}
    assert opened <= {"python", "sh", "text"}


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [
        line.split()
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.text.splitlines()
        if line.startswith("make ")
    ]
    assert lines
    assert all(re.search(rf"^{words[1]}:", makefile, re.MULTILINE) for words in lines)


def test_the_lines_for_ants_do_what_is_said(place: Path) -> None:
    ants = pytest.importorskip("ants")
    text = (ROOT / "docs" / "howto" / "ants.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^antsApplyTransforms .*$", text, re.MULTILINE)
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

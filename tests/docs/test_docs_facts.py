"""What README.md, CONTRIBUTING.md and docs/ say is true: keys, layers, commands, messages, links, versions."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import stand_ins
import warpfactor as wf
from documents import FENCE, PAGES, ROOT
from layers import LAYERS
from warpfactor.bench.paper import EXPERIMENTS
from warpfactor.cli import app as cli
from warpfactor.recipebook.table import RECIPES
from warpfactor.show import verdict

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "warpfactor"
# What wf.io has for the package itself.
PLUMBING = {"GeometryWarning", "atomic_folder", "atomic_path", "check_folder", "check_free", "run_together"}
PLUMBING |= {"is_keypoint_file", "is_picture", "reserved_folder"}
# Shown with their module, `errors`.
ERRORS = {"InputError", "FileError", "WarpfactorError", "Notice", "FolderInUseError", "OutOfMemoryError"}
ERRORS |= {"RankError", "Cancelled"}
VALUE = "\0"  # stands for what a message fills in


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_key_and_file_of_a_result_is_explained(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    stand_ins.hurry(monkeypatch)
    new = tmp_path / "new"
    line = (
        f"register fixed.nii.gz moving.nii.gz -o {new} --moving-labels moving_labels.nii.gz --landmarks landmarks.csv"
    )
    done = CliRunner().invoke(cli.app, [*line.split(), "--fixed-labels", "fixed_labels.nii.gz"])
    assert done.exit_code == 0, done.output
    entries = json.loads((new / "result.json").read_text(encoding="utf-8"))
    nested = [entries[name] for name in ("fixed", "figures", "labels", "landmarks", "verdict")] + entries["stages"]
    nested += [stage["history"] for stage in entries["stages"]]
    keys = {*entries, *(key for part in nested for key in part)}
    page = text_of("docs/files.md")
    assert [key for key in sorted(keys) if not _explained(key, page)] == []
    assert [path.name for path in new.iterdir() if f"`{path.name}`" not in page] == []


def _explained(key: str, page: str) -> bool:
    return f"`{key}`" in page or f"`{key.removesuffix('_mm')}_vox`, `..._mm`" in page


def test_every_layer_is_explained() -> None:
    architecture = text_of("docs/architecture.md")
    assert all(f"`{layer}`" in architecture for layer in LAYERS)
    assert ", ".join(LAYERS) in " ".join(text_of("CONTRIBUTING.md").split())


def test_files_that_architecture_names_exist() -> None:
    for page in ("docs/architecture.md", "CONTRIBUTING.md", "docs/howto/look.md", "docs/howto/terms.md"):
        named = {name for name in re.findall(r"`(\w[\w/]*/\w+\.py)`", text_of(page)) if Path(name).stem != "x"}
        assert named
        assert [name for name in named if not any((place / name).is_file() for place in (ROOT, SOURCE))] == []


def test_everything_new_is_in_the_changelog() -> None:
    names = [command.name for command in cli.app.registered_commands] + ["recipes", "bench"]
    root: Any = get_command(cli.app)
    names += [f"bench {name}" for name in root.commands["bench"].commands]
    page = text_of("CHANGELOG.md")
    assert [name for name in [*RECIPES, *EXPERIMENTS, *names] if f"`{name}`" not in page] == []


def test_every_option_that_a_page_names_exists() -> None:
    parameters = [each for command in _commands(get_command(cli.app)) for each in command.params]
    known = {option for each in parameters for option in [*each.opts, *each.secondary_opts]}
    theirs = set(re.findall(r"--[a-z][\w-]*", text_of("docs/howto/ants.md").split("## What corresponds")[1]))
    theirs |= {"--strict", "--array", "--cpus-per-task", "--mem", "--time"}  # of mkdocs and of a scheduler
    theirs |= {"--nworkers", "--nthreads", "--name", "--resources", "--memory-limit"}  # of dask worker
    theirs |= {"--repo", "--create-namespace", "--generate-name"}  # of helm
    theirs |= {"--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint"}  # of torchrun
    theirs |= {"--part", "--disk", "--kills", "--size", "--warmups"}  # of scripts in bench and tests/attack
    named = {option for page in PAGES for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text("utf-8"))}
    assert named - known - theirs == {"--help"} - known


def _commands(command: Any) -> list[Any]:
    children = getattr(command, "commands", {}).values()
    return [command, *(found for child in children for found in _commands(child))]


def test_lists_are_complete() -> None:
    settings, look, compare = (text_of(f"docs/howto/{name}.md") for name in ("settings", "look", "compare"))
    assert [name for name in RECIPES if f"`{name}`" not in settings] == []
    assert [name for name in wf.plot.__all__ if f"| `{name}(" not in look] == []
    assert [name for name in EXPERIMENTS if f"| `{name}` |" not in compare] == []
    named = {title for title, _ in verdict._WORDS.values()} - {"Images"}  # only of a rebuilt page
    listed = {word for row in re.findall(r"^\| ([A-Z][\w ,]+) \|", look, re.MULTILINE) for word in row.split(", ")}
    assert named == listed


def test_the_reference_has_every_public_name() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")]
    shown = {
        name
        for page in pages
        for line in re.findall(r"^(?:::: |      members: ).*", page, re.M)
        for name in _names(line)
    }
    public = {*wf.__all__, *wf.io.__all__} - {"io", "kernels", "quality"} - PLUMBING  # quality is measure
    assert public - shown - ERRORS == set()
    assert "errors" in shown


def _names(line: str) -> list[str]:
    return re.findall(r"\w+", line)


@cache
def _messages() -> tuple[str, ...]:
    """Every text in the source, with a mark for each value that is filled in."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return tuple(" ".join(text.split()) for text in found)


HEADINGS = re.findall(r"^### `(.*)`$", (DOCS / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("heading", HEADINGS)
def test_messages_are_those_of_the_code(heading: str) -> None:
    parts = [re.escape(part).replace(r"\ ", " ") for part in re.split(r"\.\.\.", heading) if part.strip(": ")]
    pattern = re.compile("[^\n]*?".join(part.strip() for part in parts))
    assert any(pattern.search(text) for text in _messages())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
        assert line in text_of(name), name


def test_pictures_are_small() -> None:
    pictures = list(DOCS.glob("images/*.png"))
    assert {path.name for path in pictures} == {"registration.png", "report.png", "sensitivity.png"}
    assert all(path.stat().st_size < 300_000 for path in pictures)


def test_the_pages_of_commands_and_recipes_are_made_from_the_code() -> None:
    hooks = _hooks()
    commands, recipes = "\n".join(hooks.command_help()), "\n".join(hooks.recipe_tables())
    assert "## register\n" in commands and "## bench accuracy\n" in commands and "--keep-interrupted" in commands
    assert [name for name in RECIPES if f"## {name}\n" not in recipes] == []
    assert hooks.from_the_root("[a](docs/files.md#x) [b](CHANGELOG.md)") == "[a](files.md#x) [b](changelog.md)"


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

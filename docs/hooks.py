"""What mkdocs does besides: pages from files of the repository, and commands and recipes from the code itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[1]
INCLUDED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
COMMANDS, RECIPES = "<!-- commands -->", "<!-- recipes -->"
WIDTH = 100


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of a page with everything put in that is kept elsewhere."""
    name = page.file.src_uri
    if name in INCLUDED:
        return from_the_root((ROOT / INCLUDED[name]).read_text(encoding="utf-8"))
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, "\n".join(command_help()))
    if RECIPES in markdown:
        markdown = markdown.replace(RECIPES, "\n".join(recipe_tables()))
    return markdown


def from_the_root(text: str) -> str:
    """A page of the repository's root with its links as seen from docs/."""
    for page, source in INCLUDED.items():
        text = text.replace(f"]({source})", f"]({page})")
    return re.sub(r"\]\(docs/", "](", text)


def command_help() -> Iterator[str]:
    """A heading and the help of every command."""
    from warpfactor.cli.app import app

    for path, command in _leaves(typer.main.get_command(app), ("warpfactor",)):
        context = command.context_class(command, info_name=" ".join(path), terminal_width=WIDTH)
        yield f"## {' '.join(path[1:])}\n\n```text\n{command.get_help(context).strip()}\n```\n"


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from _leaves(child, (*path, name))


def recipe_tables() -> Iterator[str]:
    """What each recipe is for, and all its settings."""
    from warpfactor.recipebook import table as recipe_data

    for name, recipe in recipe_data.RECIPES.items():
        yield f"## {name}\n\n{recipe.description}\n\n```toml\n{recipe.to_toml().strip()}\n```\n"

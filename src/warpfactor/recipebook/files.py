"""Recipes by name or from files; a result.json is such a file, so a registration can be run again from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpfactor.errors import FileError, InputError
from warpfactor.io import atomic_path
from warpfactor.recipebook import toml
from warpfactor.recipebook.plain import unknown
from warpfactor.recipebook.recipe import Recipe
from warpfactor.recipebook.table import ALIASES, RECIPES


def recipes() -> dict[str, Recipe]:
    """The recipes that come with the package, by name."""
    return dict(RECIPES)


def recipe(spec: str | Path | Recipe) -> Recipe:
    """A recipe by its name, or from a .toml or .json file; a Recipe is returned as it is.

    "syn" is another name of "symmetric".
    """
    if isinstance(spec, Recipe):
        return spec
    if isinstance(spec, Path) or spec.lower().endswith((".toml", ".json")) or "/" in spec:
        return read_recipe(spec)
    name = ALIASES.get(spec, spec)
    if name not in RECIPES:
        raise unknown("recipe", spec, RECIPES)
    return RECIPES[name]


def read_recipe(path: str | Path) -> Recipe:
    """The recipe in a .toml or .json file, or the one that a result.json was made with."""
    path = Path(path)
    data = _parse(path)
    if isinstance(data, dict) and isinstance(data.get("recipe"), dict):
        data = data["recipe"]
    try:
        if not isinstance(data, dict):
            raise InputError("A recipe is a table of settings.")
        return Recipe.from_dict({"name": path.stem, **data})
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def write_recipe(recipe: Recipe, path: str | Path, *, force: bool = False) -> None:
    """Write a recipe as .toml or .json."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise FileError(f"{path}: a recipe is written as .toml or .json.")
    text = recipe.to_toml() if path.suffix == ".toml" else json.dumps(recipe.to_dict(), indent=2) + "\n"
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _parse(path: Path) -> Any:
    if not path.is_file():
        raise FileError(f"{path}: there is no such recipe file.")
    try:
        text = path.read_text(encoding="utf-8")
        return toml.parse(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except RecursionError as error:
        raise FileError(f"{path}: cannot be read as a recipe, its tables are nested too deeply.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, toml.ParseError) as error:
        raise FileError(f"{path}: cannot be read as a recipe ({error}).") from error

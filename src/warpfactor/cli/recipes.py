"""`warpfactor recipes`: list them, show one."""

from __future__ import annotations

from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.errors import InputError

app = typer.Typer(help="List the recipes, or show all settings of one.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
def list_() -> None:
    """Every recipe with its stages and what it is for."""
    rows = []
    for recipe in wf.recipes().values():
        stages = [f"{stage.dof} ({stage.metric})" for stage in recipe.linear]
        if recipe.deformable is not None:
            stages.append(f"deformable ({recipe.deformable.metric.name})")
        rows.append((recipe.name, ", ".join(stages), recipe.description))
    show.print_table(("recipe", "stages", "for"), rows)


@app.command("show")
def show_one(
    name: Annotated[str, typer.Argument(help="Name or file of a recipe, or a result.json.")],
    form: Annotated[str, typer.Option("--format", help="toml or json.")] = "toml",
) -> None:
    """All settings of a recipe; save them as a file, change it, and give that to `register --recipe`."""
    recipe = wf.recipe(name)
    if form == "toml":
        typer.echo(recipe.to_toml(), nl=False)
    elif form == "json":
        from warpfactor.register.result import json_text

        typer.echo(json_text(recipe.to_dict()), nl=False)
    else:
        raise InputError(f"unknown format {form!r}; use toml or json.")

"""`warpfactor recipes`: list the recipes, or show the settings of one."""

from __future__ import annotations

from typing import Annotated

import typer

import warpfactor as wf
from warpfactor.cli import terminal
from warpfactor.cli.options import Command
from warpfactor.errors import InputError

app = typer.Typer(help="List the recipes, or show all settings of one.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def _default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_recipes()


@app.command("list", cls=Command)
def list_recipes() -> None:
    """List all recipes with their stages and purpose."""
    rows = []
    for recipe in wf.recipes().values():
        stages = [f"{stage.dof} ({stage.metric})" for stage in recipe.linear]
        if recipe.deformable is not None:
            stages.append(f"deformable ({recipe.deformable.metric.name})")
        rows.append((recipe.name, ", ".join(stages), recipe.description))
    typer.echo(terminal.table(("recipe", "stages", "purpose"), rows), nl=False)


@app.command("show", cls=Command)
def show_recipe(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="Name or file of a recipe, or a result.json.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="Output format: toml or json.")] = "toml",
) -> None:
    """Print all settings of a recipe.

    Save them to a file, edit it, and pass it to `register --recipe`.
    """
    recipe = wf.recipe(name)
    if form == "toml":
        typer.echo(recipe.to_toml(), nl=False)
    elif form == "json":
        from warpfactor.io.jsontext import json_text

        typer.echo(json_text(recipe.to_dict()), nl=False)
    else:
        raise InputError(f"Unknown format {form!r}; use toml or json.")

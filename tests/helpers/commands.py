"""Commands of the command line, run in this process."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from warpfactor.cli.app import app

RUNNER = CliRunner()


def run(*arguments: object, code: int = 0) -> Any:
    """Run a command, check its exit code and return what it printed."""
    done = RUNNER.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def entries(folder: Path) -> Any:
    """The result.json of a folder."""
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))

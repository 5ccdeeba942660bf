"""The application: its commands, and how errors, warnings and signals end it.

Exit codes: 0 success, 1 internal error (or, of `info --check-device`, a device that is absent or did not pass), 2 wrong
usage or input, 3 failed rows of `cohort` or runs of `bench`, 130 interrupted (Ctrl-C), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import traceback
import warnings
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import warpfactor as wf
from warpfactor.cli import (
    apply,
    bench,
    cohort,
    compose,
    datasets,
    demo,
    evaluate,
    info,
    invert,
    jacobian,
    longitudinal,
    morphometry,
    recipes,
    register,
    report,
    segment,
    summary,
    template,
    warmup,
    wording,
)
from warpfactor.cli.options import Command
from warpfactor.errors import WarpfactorError
from warpfactor.memory import memory_errors

INPUT_ERROR, INTERNAL_ERROR, INTERRUPTED, TERMINATED = 2, 1, 130, 143
# Imports create some 400 000 objects that stay alive, and scanning them for garbage at Python's default rate takes half
# a second. These thresholds scan after 10 000 new objects, and older generations 20 and 10 times less often.
GARBAGE_THRESHOLDS = (10_000, 20, 10)


class CommandGroup(TyperGroup):
    """Commands whose errors are one sentence on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module=r"warpfactor\.")
            warnings.showwarning = _show_warning
            try:
                with memory_errors(wording.LESS_MEMORY):
                    return super().invoke(ctx)
            except WarpfactorError as error:
                _fail(str(error), INPUT_ERROR)
            except KeyboardInterrupt:
                _fail(wording.INTERRUPTED, INTERRUPTED)
            except SystemExit as error:
                if error.code == TERMINATED:
                    _fail(wording.TERMINATED, TERMINATED)
                raise


app = typer.Typer(
    name="warpfactor",
    cls=CommandGroup,
    help="Deformable registration of medical images with smooth, invertible transforms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_add = partial(app.command, cls=Command)
_add("register", short_help="Register two images.")(register.command)
_add("longitudinal", short_help="Map what changed between scans of one person.")(longitudinal.command)
_add("apply", short_help="Apply a transform to images, labels, series or points.")(apply.command)
_add("cohort", short_help="Register many images, on this machine or a cluster.")(cohort.command)
_add("template", short_help="Make an unbiased template of a group.")(template.command)
_add("segment", short_help="Segment an image by labelled atlases.")(segment.command)
_add("morphometry", short_help="Compare volumes between groups, voxel by voxel.")(morphometry.command)
_add("invert", short_help="Invert a transform.")(invert.command)
_add("compose", short_help="Compose several transforms into one.")(compose.command)
_add("jacobian", short_help="Compute the Jacobian determinant of a warp.")(jacobian.command)
_add("evaluate", short_help="Compute label overlap, landmark errors and folds.")(evaluate.command)
_add("report", short_help="Make the report of a result again.")(report.command)
_add("summary", short_help="Summarise many results on one page.")(summary.command)
app.add_typer(recipes.app, name="recipes")
app.add_typer(bench.app, name="bench")
_add("datasets", short_help="Prepare and check datasets for `bench`.")(datasets.command)
_add("info", short_help="Print versions and hardware for bug reports.")(info.command)
_add("warmup", short_help="Compile all kernels ahead of time.")(warmup.command)
_add("demo", short_help="Register a pair with a known transform.")(demo.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warpfactor {wf.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Entry point; ends the process with its exit code."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    atexit.register(gc.freeze)  # a last scan for garbage takes half a second, and the process ends anyway
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)  # an exception, so that temporary files are removed
    try:
        app(args=arguments, prog_name="warpfactor")
    except SystemExit as error:
        if _interrupted(error) and os.name == "posix":
            _end_by_interrupt()
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(INTERNAL_ERROR)
    except Exception:
        traceback.print_exc()
        typer.echo(f"warpfactor: {wording.OUR_ERROR}", err=True)
        sys.exit(INTERNAL_ERROR)


def _fail(message: str, code: int) -> None:
    typer.echo(f"warpfactor: {wording.one_line(message)}", err=True)
    raise typer.Exit(code)


def _interrupted(error: BaseException | None) -> bool:
    """Whether an exit was caused by Ctrl-C; False if a command handled it and ended normally."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _end_by_interrupt() -> None:
    """End as SIGINT's default action would, so that shells report 130 and stop their loops as well.

    Python does so for a KeyboardInterrupt that nobody catches, after cleaning up; only its traceback is suppressed.
    """
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt


def _terminate(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warpfactor: warning: {wording.one_line(message)}", err=True)

"""The application: its commands, and what becomes of errors, warnings and Ctrl-C.

Exit codes: 0 well, 2 wrong usage or input, 1 an error of ours, 130 interrupted, 143 terminated; 3 is `bench`'s.
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
    datasets,
    demo,
    evaluate,
    info,
    recipes,
    register,
    report,
    summary,
    transforms,
    warmup,
)
from warpfactor.cli.options import Command
from warpfactor.errors import WarpfactorError

INPUT_ERROR, INTERNAL_ERROR, INTERRUPTED, TERMINATED = 2, 1, 130, 143
# Importing makes some 400 000 objects that stay, and looking through them for garbage again and again takes half a
# second: it is done after so many new ones, and for older generations 20 and 10 times less often.
GARBAGE = (10_000, 20, 10)


class Group(TyperGroup):
    """Commands whose errors are one sentence on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning, module=r"warpfactor\.")
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except WarpfactorError as error:
                text = str(error).replace("force=True", "--force").replace("ras=True", "--ras")  # as they are here
                _fail(text, INPUT_ERROR)
            except KeyboardInterrupt:
                _fail("Interrupted; nothing was written.", INTERRUPTED)
            except SystemExit as error:
                if error.code == TERMINATED:
                    _fail("Terminated; nothing was written.", TERMINATED)
                raise
            except MemoryError:
                _fail("The memory is full; use a coarser image, or one that is cropped to what matters.", INPUT_ERROR)


app = typer.Typer(
    name="warpfactor",
    cls=Group,
    help="Register medical images: find the smooth, invertible warp that carries a moving image onto a fixed one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_add = partial(app.command, cls=Command)
_add("register", short_help="Two images in; transform, inverse and warped image out.")(register.command)
_add("apply", short_help="Carry images, labels, series or points along.")(apply.command)
_add("invert", short_help="The inverse of a transform.")(transforms.invert)
_add("compose", short_help="Several transforms as one.")(transforms.compose)
_add("jacobian", short_help="Map of the Jacobian determinant.")(transforms.jacobian)
_add("evaluate", short_help="Overlap, distances, landmark errors, folds.")(evaluate.command)
_add("report", short_help="The page of a result, made again.")(report.command)
_add("summary", short_help="One page over many results.")(summary.command)
app.add_typer(recipes.app, name="recipes")
app.add_typer(bench.app, name="bench")
_add("datasets", short_help="How to lay out data for `bench`; check it; an example.")(datasets.command)
_add("info", short_help="Versions and backends, for bug reports.")(info.info)
_add("warmup", short_help="Compile the kernels now.")(warmup.command)
_add("demo", short_help="A pair with known truth, from files to figures.")(demo.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warpfactor {wf.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Entry point; ends the process with its exit code."""
    gc.set_threshold(*GARBAGE)
    atexit.register(gc.freeze)  # what is left goes with the process; to look for garbage in it takes half a second
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)  # so that what is half written is cleared away
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
        typer.echo("warpfactor: This is an error of warpfactor; please report it with `warpfactor info`.", err=True)
        sys.exit(INTERNAL_ERROR)


def _fail(message: str, code: int) -> None:
    typer.echo(f"warpfactor: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what led to an exit; not if a command made something of it and ended well."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _end_by_interrupt() -> None:
    """End as by SIGINT's default action: shells report 130, and know that their loop is to stop too.

    Python does that for an interrupt that nobody catches, after its own cleaning up; only its traceback is left out.
    """
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt


def _terminate(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"warpfactor: warning: {' '.join(str(message).split())}", err=True)

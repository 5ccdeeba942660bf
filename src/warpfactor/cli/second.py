"""A second process that compiles kernels beside this one, when none is kept on the machine yet.

Both go through one list of parts, from its two ends, and each finds on disk what the other has made; where they meet,
a part may be compiled twice. Nothing waits for the second process, and it ends with the first, however that ends: it
reads from a pipe, which has an end when the first process closes it or is no more.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

Part: TypeAlias = tuple[str, Callable[[], object]]

# The first thing it does is to look for modules where this process does, not in the working folder.
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from warpfactor.cli.second import main; main()"
PATIENCE_SECONDS = 0.5  # it ends in a few milliseconds; then it is killed


@contextmanager
def second_process(parts: str, choice: Any = None, *, threads: int | None = None) -> Iterator[bool]:
    """While the block runs, another process does parts of work from the last to the first.

    Yields whether there is one: only if nothing is compiled yet and there is a core for it.

    Args:
        parts: "module:function", which returns a list of Part.
        choice: what the function is given; plain data.
        threads: how many the user allows; None for all.
    """
    helper = _start() if _pays_off(threads) else None
    if helper is None or helper.stdin is None:
        yield False
        return
    try:
        with suppress(OSError):  # it could not start; then there is nobody to tell
            helper.stdin.write(f"{json.dumps([parts, choice])}\n".encode())
        yield True
    finally:
        _end(helper)


def _pays_off(threads: int | None) -> bool:
    from warpfactor.bench.run.machine import cores
    from warpfactor.kernels.numba._compile.cache import is_empty

    return threads != 1 and cores() > 1 and is_empty()


def _start() -> subprocess.Popen[bytes] | None:
    """The process; None if the system has no room for one."""
    command = [sys.executable, "-c", _CODE, *sys.path]
    silent = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=silent, stderr=silent)
    except OSError:
        return None


def _end(helper: subprocess.Popen[bytes]) -> None:
    if helper.stdin is not None:
        helper.stdin.close()
    try:
        helper.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()


def main() -> None:
    """What the second process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process; this one ends when that does
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    if line:
        parts, choice = json.loads(line)
        module, _, name = parts.partition(":")
        for _, part in reversed(getattr(importlib.import_module(module), name)(choice)):
            part()
    os._exit(0)  # the thread still reads


def _end_with_the_first() -> None:
    while os.read(0, 1):
        pass
    cache = sys.modules.get("warpfactor.kernels.numba._compile.cache")
    with suppress(AttributeError):  # it is being imported
        if cache is not None:
            cache.writing.acquire()  # no file is left half written
    os._exit(0)

"""Notice when kernels are compiled: the first run spends half a minute on it, later runs load them from disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from numba.core import event

EVENT = "numba:compile"


@dataclass
class Compilations:
    """The number of kernels that were compiled, with their parts, and the seconds this took."""

    count: int = 0
    seconds: float = 0.0


@contextmanager
def counted() -> Iterator[Compilations]:
    """Count the kernels that are compiled in the block."""
    found = Compilations()
    with event.install_listener(EVENT, _Counter(found)):
        yield found


def tell_once(tell: Callable[[], None] | None) -> None:
    """Call `tell` when the next kernel has to be compiled, and never again; None cancels an earlier request."""
    _teller.tell = tell


class _Counter(event.Listener):
    """Counts outermost compilations: those of a kernel's parts are nested in its own."""

    def __init__(self, found: Compilations) -> None:
        self._found, self._depth, self._began = found, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._found.count += 1
            self._found.seconds += time.perf_counter() - self._began


class _Teller(event.Listener):
    """Calls `tell` at the start of the next compilation."""

    tell: Callable[[], None] | None = None

    def on_start(self, event: Any) -> None:
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()

    def on_end(self, event: Any) -> None:
        """Do nothing: the end of a compilation is not announced."""


_teller = _Teller()
event.register(EVENT, _teller)

"""Notice that kernels are compiled: a first run takes half a minute for it, later runs load them from disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from numba.core import event

KIND = "numba:compile"


@dataclass
class Compilations:
    """Kernels that were compiled within a block, and the seconds it took; those inside others count with them."""

    count: int = 0
    seconds: float = 0.0


@contextmanager
def counted() -> Iterator[Compilations]:
    """Count what is compiled in the block."""
    found = Compilations()
    with event.install_listener(KIND, _Counter(found)):
        yield found


def tell_once(tell: Callable[[], None] | None) -> None:
    """Have `tell` called when the next kernel has to be compiled, once; None calls it off."""
    _teller.tell = tell


class _Counter(event.Listener):
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
    tell: Callable[[], None] | None = None

    def on_start(self, event: Any) -> None:
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()

    def on_end(self, event: Any) -> None:
        """Nothing is told at the end."""


_teller = _Teller()
event.register(KIND, _teller)

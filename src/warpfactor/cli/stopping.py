"""Ctrl-C and SIGTERM during a registration: they end it, or let it end with what it has found."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfactor.stages.stage import Progress as Callback
    from warpfactor.stages.stage import Update

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPING = "stopping, then writing what is found; Ctrl-C again ends it at once with nothing written"


class Stop:
    """What becomes of signals that ask a run to end.

    With `keep`, and once an iteration is done, the first one is only noted: `watched` raises KeyboardInterrupt at the
    next iteration, where `register` has a best result; without another iteration the run comes to its own end. So
    nothing is lost, whenever it comes. Every other signal does what it did before.

    Attributes:
        number: of the first signal; None if there was none.
    """

    def __init__(self, tell: Callable[[str], None], *, keep: bool) -> None:
        self.number: int | None = None
        self._tell, self._keep = tell, keep
        self._begun = False
        self._before: dict[int, Any] = {}

    def watched(self, callback: Callback | None) -> Callback:
        """A progress callback that calls this one, and ends the run if a signal was noted."""

        def told(update: Update) -> None:
            self._begun = True
            if callback is not None:
                callback(update)
            if self.number is not None:
                raise KeyboardInterrupt

        return told

    def receive(self, number: int, frame: Any) -> None:
        """The handler of the signals."""
        first, self.number = self.number is None, self.number or number
        if first and self._keep and self._begun:
            self._tell(STOPPING)
        else:
            self._before[number](number, frame)

    def install(self) -> None:
        """Handle the signals that are not ignored; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self.receive)

    def remove(self) -> None:
        """Handle them as before."""
        for number, before in self._before.items():
            signal.signal(number, before)


@contextmanager
def stoppable(tell: Callable[[str], None], *, keep: bool) -> Iterator[Stop]:
    """Signals are handled by a Stop for the time of a block."""
    stop = Stop(tell, keep=keep)
    stop.install()
    try:
        yield stop
    finally:
        stop.remove()

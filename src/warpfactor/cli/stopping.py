"""Ctrl-C and SIGTERM for a run that is to keep its best result so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from warpfactor.cli.wording import STOPPING

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class StopRequest:
    """Whether a run has been asked to end early.

    Attributes:
        event: the `stop` argument of `register`.
        signal: number of the signal that set it; None if there was none.
    """

    event: threading.Event = field(default_factory=threading.Event)
    signal: int | None = None


@contextmanager
def stop_on_signal(tell: Callable[[str], None], *, keep: bool) -> Iterator[StopRequest]:
    """Let the first signal within a block request a stop; a second one acts as it would have without this.

    Args:
        tell: shows a message; called from the signal handler.
        keep: False leaves the signals alone: they end the program.
    """
    stop = StopRequest()
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def receive(number: int, _: FrameType | None) -> None:
        restore()
        stop.signal = number
        stop.event.set()
        tell(STOPPING)

    if keep and threading.current_thread() is threading.main_thread():  # other threads may not set handlers
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, receive)
    try:
        yield stop
    finally:
        restore()

"""Pairs that are registered at once, each in a thread of its own, and the work that they do together.

A pair that comes to such work waits until all others have come to some, or have left. Those that came to work of one
kind then do it together, in the thread of one of them; the others go on when it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from warpfactor.kernels.ops import Ops

Work = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass
class _Seat:
    """One who waits.

    Attributes:
        kind: of the work; equal kinds are done together.
        task: what is to be done for this pair.
        work: does it for several.
        found: what came out, or the exception to be raised.
    """

    kind: object
    task: Any
    work: Work
    found: Any = None
    done: bool = False


class Company:
    """So many pairs; each one leaves when it has been registered."""

    def __init__(self, count: int) -> None:
        self._members = count
        self._waiting: list[_Seat] = []
        self._changed = threading.Condition()

    def leave(self) -> None:
        """Nobody waits any longer for one of the pairs."""
        with self._changed:
            self._members -= 1
            self._changed.notify_all()

    def join(self, kind: object, task: Any, work: Work) -> Any:
        """What the work makes of a task, done together with the tasks of the same kind of all other pairs."""
        seat = _Seat(kind, task, work)
        with self._changed:
            self._waiting.append(seat)
            self._changed.wait_for(lambda: seat.done or len(self._waiting) == self._members)
            ready = [] if seat.done else self._waiting
            if ready:
                self._waiting = []
        for group in _alike(ready):
            _do(group)
        if ready:
            with self._changed:
                self._changed.notify_all()
        if isinstance(seat.found, BaseException):
            raise seat.found
        return seat.found


def _alike(seats: Sequence[_Seat]) -> list[list[_Seat]]:
    """The seats by the kind of their work."""
    groups: list[list[_Seat]] = []
    for seat in seats:
        group = next((each for each in groups if each[0].kind == seat.kind), None)
        if group is None:
            groups.append([seat])
        else:
            group.append(seat)
    return groups


def _do(group: Sequence[_Seat]) -> None:
    try:
        found = group[0].work([seat.task for seat in group])
    except BaseException as error:  # is raised again by every pair that took part
        found = [error] * len(group)
    for seat, result in zip(group, found, strict=True):
        seat.found, seat.done = result, True


class Accompanied:
    """The operations of a backend, for one pair of a company."""

    def __init__(self, ops: Ops, company: Company) -> None:
        self._ops, self.company = ops, company

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)


def company_of(ops: Ops) -> Company | None:
    """The company of the pair whose operations these are; None if it is alone."""
    return ops.company if isinstance(ops, Accompanied) else None

"""An engine that does every job in this process, in place of Dask's workers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


class SerialEngine:
    """Does jobs one after the other; `before` is called with each, and may do to it what accidents do."""

    address = ""

    def __init__(self, before: Callable[[Any], None] = lambda _: None) -> None:
        self.before = before
        self.done: list[str] = []

    def workers(self) -> int:
        return 1

    def finished(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        for job in jobs:
            self.before(job)
            self.done.append(job.name)
            yield job, function(job)


def use_serial(monkeypatch: pytest.MonkeyPatch, engine: SerialEngine | None = None) -> SerialEngine:
    """Let cohorts, templates and segmentations run in this process."""
    used = engine or SerialEngine()

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[SerialEngine]:
        yield used

    for module in ("study", "template.builder"):
        monkeypatch.setattr(f"warpfactor.cohort.{module}.open_engine", opened)
    return used

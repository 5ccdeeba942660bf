"""Jobs in threads, of which none runs any more when the main thread goes on, whatever ended its wait.

Python's own pool does not give that: a signal that comes while it starts a thread leaves one that it does not know and
does not wait for, and a file that this one writes appears after its folder was cleared away.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")
Job = Callable[[], object]
_LOOK_SECONDS = 0.002


def run_together(jobs: Sequence[Job], threads: int) -> None:
    """Run jobs in threads and raise the first error; no job runs any more when this returns or raises.

    It pays off for SimpleITK's writers, which pack without holding Python's lock.
    """
    run_beside(lambda: None, jobs, threads)


def run_beside(main: Callable[[], _T], jobs: Sequence[Job], threads: int) -> _T:
    """What `main` returns, with jobs run in threads meanwhile; raises the first error, and none runs afterwards."""
    crew = _Crew(jobs)
    try:
        crew.start(min(len(jobs), threads))
        result = main()
        crew.wait()
    finally:
        crew.end()
    if crew.errors:
        raise crew.errors[0]
    return result


class _Crew:
    """Threads that take jobs from a queue.

    The main thread, where signals are raised, holds no lock: it only looks whether the queue is empty and nobody busy.
    A thread is busy before it looks into the queue, so both together mean that nothing runs and nothing will.

    Attributes:
        errors: of jobs, in the order they came.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.errors: list[BaseException] = []
        self._jobs = deque(jobs)
        self._busy = 0
        self._lock = threading.Lock()

    def start(self, threads: int) -> None:
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True).start()

    def wait(self) -> None:
        """Until every job is done."""
        while self._jobs or self._busy:
            time.sleep(_LOOK_SECONDS)

    def end(self) -> None:
        """Take back what nobody has begun and wait for the rest; Ctrl-C is raised when that has ended."""
        interrupted: KeyboardInterrupt | None = None
        while self._jobs or self._busy:
            try:
                self._jobs.clear()
                time.sleep(_LOOK_SECONDS)
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def _work(self) -> None:
        while True:
            self._count(1)
            try:
                job = self._jobs.popleft()
            except IndexError:
                return self._count(-1)
            try:
                job()
            except BaseException as error:  # the main thread raises it
                self.errors.append(error)
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._busy += change

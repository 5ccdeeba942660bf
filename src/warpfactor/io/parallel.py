"""Several files written at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def run_together(jobs: Sequence[Callable[[], object]], threads: int) -> None:
    """Run jobs in a pool of threads and raise the first error.

    Jobs that have not started by then are dropped, and those that run are waited for: no job is still writing into a
    folder when this function returns or raises, so the folder can be removed. This also holds for the first Ctrl-C.
    """
    pool = ThreadPoolExecutor(max(1, min(len(jobs), threads)))
    try:
        for future in [pool.submit(job) for job in jobs]:
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

"""Jobs on a Dask cluster: local processes, a scheduler at an address, or workers that a job queue starts."""

from __future__ import annotations

import importlib.util
import logging
import multiprocessing
import time
from asyncio import TimeoutError as AsyncTimeoutError  # another class before Python 3.11
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from warpfactor.cohort.engine.settings import JOBQUEUES, EngineSettings
from warpfactor.cohort.memory import machine_bytes
from warpfactor.errors import InputError, WarpfactorError

MISSING = "Cohorts, templates and segmentation need Dask; install it with pip install 'warpfactor[cohort]'."
DIED = (
    "The workers that tried it died, most likely for want of memory; give them more with --memory-per-worker, or start "
    "fewer."
)
NEEDED = ("dask", "distributed", "pandas")
RESOURCE = "registration"  # of workers that have several threads, so that each does one job at a time
# Workers hold nothing that could be written to disk to save memory; a limit that the user sets ends them.
CONFIG = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.allowed-failures": 3,
    "distributed.scheduler.work-stealing": True,
    "distributed.worker.profile.enabled": False,
    # With it the C library asks the system for every large array anew: 16 % more time for a registration of 64³.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
    "distributed.admin.tick.limit": "1 h",  # kernels keep a worker's event loop waiting; that is no reason to worry
}
_ANSWER_S, _FETCH_S = 5, 120  # within which a living scheduler answers, and results are fetched
_Job = TypeVar("_Job")


@dataclass(frozen=True)
class Crash:
    """A job that Dask gave up, because several workers died that had it; it may only have waited there.

    Attributes:
        reason: as a sentence.
    """

    reason: str


class Engine(Protocol):
    """What runs jobs."""

    @property
    def address(self) -> str:
        """Where its dashboard is; empty if it has none."""

    def workers(self) -> int:
        """How many workers there are now."""

    def finished(self, function: Callable[[_Job], Any], jobs: Sequence[_Job]) -> Iterator[tuple[_Job, Any]]:
        """Run a function on every job; yield each job with its result, or a Crash, when it has ended."""


class SchedulerLostError(WarpfactorError):
    """The scheduler does not answer any more."""


class WorkerError(WarpfactorError):
    """A worker that runs, but not what it was sent."""


def engine_problems(settings: EngineSettings) -> Iterator[str]:
    """What keeps an engine from being opened, one sentence each; asks a scheduler whether it is there."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        yield MISSING
        return
    if settings.jobqueue is not None and settings.jobqueue not in JOBQUEUES:
        yield f"The job queue {settings.jobqueue!r} is not known; the known ones are {', '.join(JOBQUEUES)}."
    elif settings.jobqueue is not None and importlib.util.find_spec("dask_jobqueue") is None:
        yield MISSING
    if settings.jobqueue is not None and settings.workers is None:
        yield "A job queue needs the number of jobs to start; give --workers COUNT."
    if settings.jobqueue is not None and settings.scheduler is not None:
        yield "Give either a scheduler or a job queue, not both."
    elif settings.scheduler is not None and (settings.workers, settings.memory_per_worker) != (None, None):
        yield "The workers of a running scheduler and their memory are chosen where they are started; leave them out."
    if settings.jobqueue_config is not None and not settings.jobqueue_config.is_file():
        yield f"{settings.jobqueue_config}: there is no such file of job queue settings."
    if settings.workers is not None and settings.workers < 1:
        yield f"The number of workers must be at least 1, not {settings.workers}."
    if settings.threads_per_worker < 1:
        yield f"The number of threads per worker must be at least 1, not {settings.threads_per_worker}."
    try:
        settings.memory_bytes  # noqa: B018 - it is read only to see whether it can be
    except InputError as error:
        yield str(error)
    if settings.scheduler is not None and not _answers(settings.scheduler):
        yield f"The scheduler {settings.scheduler} does not answer; check the address, or start it."


@contextmanager
def open_engine(settings: EngineSettings, *, need_bytes: int, jobs: int) -> Iterator[Engine]:
    """An engine for the duration of a block; its workers end with it, unless they belong to a scheduler of the user.

    Args:
        settings: where to run.
        need_bytes: the most memory that a job needs.
        jobs: how many jobs there will be at once, at most.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InputError(
            "A worker process imports the script that started it; put what the script does under "
            'if __name__ == "__main__": so that it does not start again there.'
        )
    import dask
    import distributed  # noqa: F401 - before its settings are changed, or its defaults would be lost with the changes

    with ExitStack() as stack:
        stack.enter_context(dask.config.set(CONFIG))
        if settings.scheduler is not None:
            yield stack.enter_context(_Connection(settings))
            return
        cluster = stack.enter_context(_cluster(settings, need_bytes, jobs))
        yield stack.enter_context(_Connection(settings, cluster))


@contextmanager
def jobqueue_cluster(settings: EngineSettings, need_bytes: int) -> Iterator[Any]:
    """A cluster whose workers are jobs of a queue; none is submitted before it is scaled."""
    import dask
    import dask_jobqueue

    kind = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "sge": "SGECluster", "lsf": "LSFCluster"}
    given = [] if settings.jobqueue_config is None else dask.config.collect_yaml([str(settings.jobqueue_config)])
    with (  # the settings are read whenever a job is made
        dask.config.set(dask.config.merge(dask.config.config, *given)),
        getattr(dask_jobqueue, kind[str(settings.jobqueue)])(
            cores=settings.threads_per_worker,
            processes=1,
            memory=f"{(settings.memory_bytes or round(1.2 * need_bytes)) >> 20}MiB",
            worker_extra_args=["--resources", f"{RESOURCE}=1"],
            scheduler_options={"dashboard_address": ":0"},
        ) as cluster,
    ):
        yield cluster


@contextmanager
def _cluster(settings: EngineSettings, need_bytes: int, jobs: int) -> Iterator[Any]:
    from distributed import LocalCluster

    if settings.jobqueue is not None:
        with jobqueue_cluster(settings, need_bytes) as cluster:
            cluster.scale(jobs=settings.workers)
            yield cluster
        return
    with LocalCluster(
        n_workers=settings.count(need_bytes, machine_bytes(), jobs),
        threads_per_worker=1,
        processes=True,
        memory_limit=settings.memory_bytes or 0,
        dashboard_address="127.0.0.1:0",
        resources={RESOURCE: 1},
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster


def _answers(address: str) -> bool:
    from distributed import Client

    try:
        with _quiet(), Client(address, timeout=_ANSWER_S, set_as_default=False):
            return True
    except (OSError, ValueError, TimeoutError):
        return False


class _Connection:
    """Jobs through a client of a Dask cluster. A scheduler that restarts is waited for, and its jobs sent again."""

    def __init__(self, settings: EngineSettings, cluster: Any = None) -> None:
        self._settings = settings
        self._cluster = cluster
        self._client: Any = None

    def __enter__(self) -> _Connection:
        self._client = self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        with _quiet():
            self._client.close(timeout=5)

    @property
    def address(self) -> str:
        """The dashboard of the cluster."""
        link = self._client.dashboard_link
        return link if link and importlib.util.find_spec("bokeh") is not None else ""

    def workers(self) -> int:
        """How many workers there are now."""
        client = self._client
        try:  # with a time limit, since a scheduler that has just died does not answer
            return len(client.sync(client.scheduler.ncores, callback_timeout=_ANSWER_S))
        except (OSError, ValueError, RuntimeError, AttributeError, TimeoutError, AsyncTimeoutError):
            return 0

    def finished(self, function: Callable[[_Job], Any], jobs: Sequence[_Job]) -> Iterator[tuple[_Job, Any]]:
        """Run a function on every job; yield each job with its result, or a Crash, when it has ended."""
        open_jobs = dict(enumerate(jobs))
        while open_jobs:
            for number, result in self._round(function, open_jobs):
                yield open_jobs.pop(number), result
            if open_jobs:
                self._reconnect()

    def _round(self, function: Callable[[_Job], Any], jobs: Mapping[int, _Job]) -> Iterator[tuple[int, Any]]:
        """Send all jobs and yield what ends; it returns early if the scheduler is lost."""
        from distributed import as_completed
        from distributed.client import CancelledError

        try:
            futures = {self._submit(function, job, number): number for number, job in jobs.items()}
            for future in as_completed(list(futures), loop=self._client.loop):
                if future.status in ("cancelled", "lost"):
                    continue
                try:
                    found = _result(future)
                except CancelledError:  # the scheduler was lost before it could be fetched
                    continue
                yield futures[future], found
                future.release()
        except (OSError, RuntimeError, TimeoutError, AsyncTimeoutError) as error:
            if self._client.status == "running":
                raise
            logging.getLogger(__name__).info("The connection to the scheduler was lost: %s", error)

    def _submit(self, function: Callable[[_Job], Any], job: _Job, number: int) -> Any:
        """Send a job; earlier ones come first. Workers of the user's own scheduler have no resource of ours."""
        asked = {RESOURCE: 1} if self._cluster is not None else None
        key = f"{_title(job)}-{uuid4().hex[:8]}"
        return self._client.submit(function, job, key=key, pure=False, resources=asked, priority=-number)

    def _connect(self) -> Any:
        from distributed import Client

        target = self._settings.scheduler if self._cluster is None else self._cluster
        return Client(target, set_as_default=False)

    def _reconnect(self) -> None:
        """A new client, once the scheduler answers again; SchedulerLostError if it does not within the patience."""
        until = time.monotonic() + self._settings.patience_s
        with _quiet():
            self._client.close(timeout=5)
        while time.monotonic() < until:
            try:
                with _quiet():
                    self._client = self._connect()
                return
            except (OSError, ValueError, TimeoutError, RuntimeError):
                time.sleep(1)
        raise SchedulerLostError(
            f"The scheduler {self._settings.scheduler or ''} was lost and could not be reached again within "
            f"{self._settings.patience_s:g} s; what is finished is kept, and the same command goes on from there."
        )


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result(timeout=_FETCH_S)
    error = future.exception()
    if isinstance(error, KilledWorker):
        return Crash(DIED)
    raise WorkerError(
        f"A worker cannot run jobs ({type(error).__name__}: {error}); install warpfactor[cohort] there in the same "
        "version as here."
    ) from error


def _title(job: Any) -> str:
    return str(getattr(job, "name", "job"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the messages that Dask logs when a connection ends or cannot be made."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.core", "tornado")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

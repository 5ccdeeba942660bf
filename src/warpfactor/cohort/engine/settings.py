"""Where and on how many workers a cohort runs, as data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from warpfactor.memory import parse_bytes

JOBQUEUES = ("slurm", "pbs", "sge", "lsf")


@dataclass(frozen=True)
class EngineSettings:
    """Where jobs run: in processes of this machine by default.

    Attributes:
        workers: number of processes, each of which does one job at a time; by default as many as cores and memory
            allow. A job queue needs a number.
        threads_per_worker: threads of each job.
        memory_per_worker: such as "4 GB"; a worker that exceeds it is ended. No limit by default.
        scheduler: address of a running Dask scheduler, such as tcp://host:8786.
        jobqueue: slurm, pbs, sge or lsf: workers are jobs of that queue, through dask-jobqueue.
        jobqueue_config: YAML file of dask-jobqueue's settings, such as queue, account and walltime.
        patience_s: how long to wait for a scheduler that does not answer.
    """

    workers: int | None = None
    threads_per_worker: int = 1
    memory_per_worker: str | None = None
    scheduler: str | None = None
    jobqueue: str | None = None
    jobqueue_config: Path | None = None
    patience_s: float = 60.0

    @property
    def memory_bytes(self) -> int | None:
        """The memory of a worker; None if there is no limit."""
        return None if self.memory_per_worker is None else parse_bytes(self.memory_per_worker)

    @property
    def local(self) -> bool:
        """Whether the workers are processes of this machine that this process starts."""
        return self.scheduler is None and self.jobqueue is None

    def count(self, need_bytes: int, free_bytes: int, jobs: int) -> int:
        """How many processes of this machine can work at once.

        Args:
            need_bytes: the most that a job needs.
            free_bytes: memory of this machine.
            jobs: how many there are.
        """
        cores = max(1, available_cores() // self.threads_per_worker)
        fitting = max(1, free_bytes // max(1, need_bytes))
        return max(1, min(self.workers or cores, fitting, jobs))


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

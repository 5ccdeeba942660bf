"""Ranks: processes that are started here, that torchrun started, or that run on the workers of a Dask cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numba
import torch
import torch.distributed as dist

from warpfactor.errors import InputError, RankError
from warpfactor.geometry.grid import Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.ranks.exchange import LOST, Exchange
from warpfactor.ranks.work import Job, dismiss, follow, lead, limited
from warpfactor.scene.scene import Scene
from warpfactor.stages.found import Found
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Watch

if TYPE_CHECKING:
    from typing_extensions import Self

JOIN_S = 600  # within which all ranks must have come
WAIT_S = 24 * 3600  # how long a rank waits for another one that is alive: rank 0 may be at its linear stages
GRACE_S = 5  # until a process that no longer answers has ended
MESH = "cpu:gloo,cuda:nccl"  # planes on CPUs go over gloo, those on GPUs would over NCCL


class Ranks:
    """Processes that share the deformable stage of registrations; this one is rank 0.

    Made by `local`, `torchrun` or `dask`, and used as a context manager or closed at the end. It serves any number of
    registrations, one after the other.

    Attributes:
        count: number of ranks, this process included.
        peaks: the most memory that every rank had in bytes, after a registration; 0 where its system does not tell.
    """

    def __init__(self, count: int, *, threads: int | None = None) -> None:
        if count < 1:
            raise InputError(f"The number of ranks must be at least 1, not {count}.")
        self.count, self._threads = count, threads
        self.peaks: tuple[int, ...] = ()
        self._exchange: Exchange | None = None
        self._broken = False

    @staticmethod
    def local(count: int, *, threads: int | None = None) -> Ranks:
        """Ranks on this machine: this process and others that are started now.

        Args:
            threads: of each; an equal share of the cores by default.
        """
        return _Local(count, threads=threads)

    @staticmethod
    def torchrun(*, threads: int | None = None) -> Ranks:
        """The ranks that torchrun started; in all but rank 0 call `follow` next."""
        return _Launched(threads=threads)

    @staticmethod
    def dask(client: Any, count: int | None = None, *, threads: int | None = None) -> Ranks:
        """This process and workers of a Dask cluster, one rank on each.

        Args:
            client: a dask.distributed Client.
            count: number of ranks; one more than there are workers by default.
        """
        return _OnDask(client, count, threads=threads)

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, the only one that reads and writes anything."""
        return True

    def follow(self) -> None:
        """Compute what rank 0 asks for, until it closes; for all ranks but that one."""
        raise InputError("Rank 0 runs the registration itself; call register there.")

    def run(self, scene: Scene, settings: Deformable, *, ops: Ops, affine: Matrix, watch: Watch) -> Found:
        """Run the deformable stage; the result is bit-identical to that of one process."""
        with self._guarded(), limited(self._threads):
            self.check()
            job = Job(settings, affine, self._threads)
            found, self.peaks = lead(scene, job, watch, self._joined(), ops)
            return found

    def check(self) -> None:
        """RankError if a process has ended."""
        if self._broken:
            raise RankError(LOST)

    def close(self) -> None:
        """End all other ranks."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None and not self._broken:
            with suppress(RankError):
                dismiss(exchange)
        if exchange is not None:
            dist.destroy_process_group()
        self._broken = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """After an error nobody knows where the others are: they are let go."""
        try:
            yield
        except RankError as error:
            self._broken = True
            raise RankError(self._reason() or str(error)) from error
        except BaseException:
            self._broken = True
            raise

    def _reason(self) -> str | None:
        """Why a rank was lost, if that is known."""
        return None

    def _joined(self) -> Exchange:
        """The connection to the others, once they have come."""
        if self._exchange is None:
            self._join()
            self._exchange = Exchange()
        return self._exchange

    def _join(self) -> None:
        """Wait until the others have come; those that were launched together have."""


class _Started(Ranks):
    """Ranks that find this process by a store that it opens."""

    def __init__(self, count: int, host: str, *, threads: int | None) -> None:
        super().__init__(count, threads=threads)
        if dist.is_initialized():
            raise InputError(
                "This process belongs to a torch.distributed group already; use Ranks.torchrun() with that group, or "
                "leave ranks out."
            )
        self._store = _store(host, 0, is_master=True)

    def _join(self) -> None:
        until = time.monotonic() + JOIN_S
        names = [_here(rank) for rank in range(1, self.count)]
        while names and not self._store.check(names):
            self.check()
            if time.monotonic() > until:
                raise RankError(f"Not all of {self.count} ranks had started after {JOIN_S} s; nothing was written.")
            time.sleep(0.05)
        open_group(self._store, 0, self.count)

    def _reason(self) -> str | None:
        failed = self._failures()
        return None if failed is None else f"{failed}; nothing was written. Start it again."

    def _failures(self) -> str | None:
        for rank in range(1, self.count):
            if self._store.check([_failed(rank)]):
                return f"Rank {rank} of {self.count} failed: {self._store.get(_failed(rank)).decode()}"
        return None


class _Local(_Started):
    """Processes on this machine."""

    def __init__(self, count: int, *, threads: int | None) -> None:
        share = max(1, _cores() // max(count, 1))
        super().__init__(count, "127.0.0.1", threads=share if threads is None else threads)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "warpfactor.ranks", "127.0.0.1", str(self._store.port), str(rank), str(count)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(1, count)
        ]

    def check(self) -> None:
        super().check()
        reason = self._ended()
        if reason is not None:
            self._broken = True
            raise RankError(f"{reason} before the registration did; nothing was written. Start it again.")

    def close(self) -> None:
        waiting = self._exchange is None  # for rank 0, and would go on to
        super().close()
        until = time.monotonic() + GRACE_S
        for process in self._processes:
            try:
                process.wait(0 if waiting else max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        for process in self._processes:
            process.wait()

    def _reason(self) -> str | None:
        until = time.monotonic() + GRACE_S
        while self._ended() is None and self._failures() is None and time.monotonic() < until:
            time.sleep(0.05)
        ended = self._ended()
        if self._failures() is None and ended is not None:
            return f"{ended} before the registration did; nothing was written. Start it again."
        return super()._reason()

    def _ended(self) -> str | None:
        """Which process ended first by a signal, or else by itself."""
        codes = [(process.poll(), rank) for rank, process in enumerate(self._processes, 1)]
        ended = sorted((code, rank) for code, rank in codes if code is not None)
        if not ended:
            return None
        code, rank = ended[0]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"Rank {rank} of {self.count} {how}"


class _OnDask(_Started):
    """Workers of a Dask cluster."""

    def __init__(self, client: Any, count: int | None, *, threads: int | None) -> None:
        workers = sorted(client.nthreads())
        wanted = len(workers) + 1 if count is None else count
        if wanted > len(workers) + 1:
            raise InputError(
                f"{wanted} ranks need {wanted - 1} Dask workers besides this process, but there are {len(workers)}; "
                "start more, or ask for fewer ranks."
            )
        host = _own_address(client.scheduler.address)
        super().__init__(wanted, host, threads=threads)
        self._futures = [
            client.submit(join, host, self._store.port, rank, wanted, workers=[worker], pure=False, retries=0)
            for rank, worker in enumerate(workers[: wanted - 1], 1)
        ]

    def check(self) -> None:
        super().check()
        for rank, future in enumerate(self._futures, 1):
            if future.status in ("error", "lost", "cancelled"):
                self._broken = True
                raise RankError(f"Rank {rank} of {self.count} ended on its Dask worker; nothing was written.")


class _Launched(Ranks):
    """Processes that torchrun started; all of them come here."""

    def __init__(self, *, threads: int | None) -> None:
        if not (dist.is_initialized() or dist.is_torchelastic_launched()):
            raise InputError("This process was not started by torchrun; use Ranks.local(4), or start it with torchrun.")
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if not dist.is_initialized():
            dist.init_process_group(MESH if _has_cuda() else "gloo", timeout=timedelta(seconds=WAIT_S))
        share = max(1, _cores() // here)
        super().__init__(dist.get_world_size(), threads=share if threads is None else threads)
        self._exchange = Exchange()

    @property
    def is_first(self) -> bool:
        return dist.get_rank() == 0

    def follow(self) -> None:
        if self.is_first:
            super().follow()
        assert self._exchange is not None
        exchange, self._exchange = self._exchange, None
        follow(exchange)
        dist.destroy_process_group()


def join(host: str, port: int, rank: int, count: int) -> None:
    """Follow rank 0, whose store is at this address, until it closes."""
    store = _store(host, port, is_master=False)
    store.set(_here(rank), "")
    open_group(store, rank, count)
    try:
        follow(Exchange())
    except RankError:
        raise  # another one failed, or rank 0 did
    except BaseException as error:
        with suppress(RuntimeError):
            store.set(_failed(rank), f"{type(error).__name__}: {error}")
        raise
    finally:
        dist.destroy_process_group()


def open_group(store: Any, rank: int, count: int) -> None:
    """Make the default group of torch.distributed."""
    try:
        dist.init_process_group(
            MESH if _has_cuda() else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=WAIT_S),
        )
    except RuntimeError as error:
        raise RankError(LOST) from error


def _store(host: str, port: int, *, is_master: bool) -> Any:
    """What ranks find each other by; port 0 is any that is free."""
    timeout = timedelta(seconds=JOIN_S)
    make: Any = vars(dist)["TCPStore"]  # public, though PyTorch's types do not say so
    return make(host, port, is_master=is_master, wait_for_workers=False, timeout=timeout)


def _cores() -> int:
    """The number of threads that kernels have at most."""
    most: int = vars(numba.config)["NUMBA_NUM_THREADS"]
    return most


def _has_cuda() -> bool:
    return torch.cuda.is_available() and dist.is_nccl_available()


def _here(rank: int) -> str:
    return f"here/{rank}"


def _failed(rank: int) -> str:
    return f"failed/{rank}"


def _own_address(scheduler: str) -> str:
    """The address of this machine as the scheduler's machine sees it, or would."""
    host, _, port = scheduler.rpartition("/")[2].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


def checked_progress(ranks: Ranks, progress: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """The progress function, with a look at the ranks before it."""

    def told(event: Any) -> None:
        ranks.check()
        if progress is not None:
            progress(event)

    return told

"""A greedy stage that all ranks run at once: rank 0 with the images, the others with what it lends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import numba
import torch

from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.memory import peak_bytes
from warpfactor.optim import Adam, Tile
from warpfactor.ranks.exchange import Exchange
from warpfactor.ranks.share import Slabs
from warpfactor.scene.scene import Scene
from warpfactor.stages.deform import treats_alike
from warpfactor.stages.found import Found
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.settings import Deformable
from warpfactor.stages.stage import Watch
from warpfactor.terms import LNCC, MIND, MSE

BACKEND = "numba"  # its kernels can compute some planes of an image with the bits of the whole


@dataclass(frozen=True)
class Job:
    """What rank 0 tells the others of a stage.

    Attributes:
        affine: 4x4, LPS mm, fixed to moving.
        threads: of each of them; None is their own number.
    """

    settings: Deformable
    affine: Matrix
    threads: int | None


def lead(scene: Scene, job: Job, watch: Watch, exchange: Exchange, ops: Ops) -> tuple[Found, tuple[int, ...]]:
    """What the stage finds, and the peak memory of every rank in bytes; in rank 0."""
    exchange.agreed(lambda: job)
    found = _run(Slabs(exchange, ops), lambda: scene, job, watch, ops)
    return found, _peaks(exchange)


def follow(exchange: Exchange) -> None:
    """Run stages with rank 0 until it says that there are no more; in all other ranks."""
    ops = kernels.select("cpu", BACKEND)
    while (job := exchange.agreed(_none)) is not None:
        with limited(job.threads):
            _run(Slabs(exchange, ops), _no_scene, job, Watch(), ops)
        _peaks(exchange)


def dismiss(exchange: Exchange) -> None:
    """Tell the others that there is no more to do; in rank 0."""
    exchange.agreed(_none)


def _run(share: Slabs, make: Callable[[], Scene], job: Job, watch: Watch, ops: Ops) -> Found:
    scene = share.scene(make)
    return Found(*run_greedy(scene, job.settings, ops=ops, affine=job.affine, watch=watch, share=share))


def _peaks(exchange: Exchange) -> tuple[int, ...]:
    """The most memory that every rank had so far, 0 where its system does not tell."""
    return tuple(exchange.words([peak_bytes() or 0])[:, 0].tolist())


def _none() -> Job | None:
    return None


def _no_scene() -> NoReturn:
    raise AssertionError("only rank 0 makes scenes")


def check_shared(settings: Deformable | None, *, guided: bool, warped: bool, depth: int) -> None:
    """InputError if ranks cannot share this deformable stage.

    Args:
        settings: None if there is no such stage.
        guided: whether terms other than the metric lead it.
        warped: whether it starts from a warp.
        depth: number of planes of the fixed image.
    """
    if settings is None:
        _refuse("The recipe has no deformable stage, the only stage that ranks can share")
    if treats_alike(settings):
        _refuse(f"The method {settings.method!r} moves both images, which ranks cannot share")
    if not isinstance(settings.metric, (LNCC, MIND, MSE)):
        _refuse(f"The metric {settings.metric.name!r} is not a sum over planes, so ranks cannot share it")
    if isinstance(settings.optimizer, (Adam, Tile)):
        _refuse(f"The step {settings.optimizer.name!r} cannot be computed in slabs, so ranks cannot share it")
    if guided:
        _refuse("Landmarks, labels and further terms need the whole image, so ranks cannot share them")
    if warped:
        _refuse("Ranks cannot share an initial warp")
    if depth == 1:
        _refuse("Ranks share the planes of a volume, and the image has one slice")


def check_backend(name: str) -> None:
    """InputError if ranks cannot compute by this backend."""
    if name != BACKEND:
        raise InputError(
            f"Ranks compute with the backend {BACKEND!r} on CPUs, not with {name!r}; leave ranks out, or choose that "
            "backend."
        )


def _refuse(reason: str) -> NoReturn:
    raise InputError(f"{reason}; leave ranks out, or choose other settings.")


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Compute with so many threads inside the block, at most as many as there are."""
    before, before_torch = numba.get_num_threads(), torch.get_num_threads()
    try:
        if threads is not None:
            numba.set_num_threads(min(threads, before))
            torch.set_num_threads(min(threads, before_torch))
        yield
    finally:
        numba.set_num_threads(before)
        torch.set_num_threads(before_torch)

"""`register_batch`: many pairs in one process, several of them in flight; each comes out as if it were alone.

The CPU's kernels serve one caller at a time, but a third to a half of the time of a small registration is spent between
them, in Python. With several pairs in flight one pair's kernels run while another one's Python does.

On a GPU the pairs in flight are a company (`stages/company.py`): the levels of the deformable stage of those whose
images have one size are run together, each launch for all of them. What comes before and after, such as linear stages,
every pair does by itself, on a stream of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event as StopEvent
from typing import Any, cast

import numba
import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.errors import InputError, WarpfactorError
from warpfactor.kernels.held import device_form
from warpfactor.kernels.ops import Ops
from warpfactor.recipebook.files import recipe as find_recipe
from warpfactor.registration.resources import checked_device, limited_threads
from warpfactor.registration.result import Registration
from warpfactor.registration.run import register
from warpfactor.stages.company import Accompanied, Company
from warpfactor.stages.stage import Event
from warpfactor.terms import METRICS

TOGETHER = 3  # pairs in flight on the CPU
TOGETHER_ON_DEVICE = 8
PER_PAIR = ("fixed_mask", "moving_mask", "initial", "landmarks")

BatchProgress = Callable[[int, Event], None]
OnError = Callable[[int, WarpfactorError], None]


def register_batch(
    fixed: Sequence[Any],
    moving: Sequence[Any],
    *,
    together: int | None = None,
    threads: int | None = None,
    progress: BatchProgress | None = None,
    stop: StopEvent | Sequence[StopEvent] | None = None,
    on_error: OnError | None = None,
    **options: Any,
) -> tuple[Registration, ...]:
    """Register many small pairs; the results are those of `register` for each pair, bit for bit.

    Every pair has its own damping, decisions and end. All results are held in memory, with their images.

    Args:
        fixed, moving: as many of one as of the other, each as `register` takes it; or arrays whose first axis counts.
        together: how many pairs are in flight, and in memory (default: 3 on the CPU, 8 on a GPU); 1 registers one after
            the other. On a GPU pairs of one size share the launches of every iteration, so small ones gain from more.
        threads: maximum number of threads of a kernel (default: all cores).
        progress: called with the number of the pair, from 0, and an Event after every iteration; one call at a time.
        stop: a threading.Event that ends all pairs, or one for each of them.
        on_error: called with the number of a pair that cannot be registered, and the error, which names the pair. The
            pair is then left out of the results. Without it the first error is raised.
        options: as of `register`, for all pairs. `fixed_mask`, `moving_mask`, `initial` and `landmarks` are lists with
            one entry, or None, for each pair.

    >>> import warpfactor as wf
    >>> pairs = [wf.phantom.phantom((1, 32, 32), seed=seed) for seed in range(3)]
    >>> results = wf.register_batch([p.fixed for p in pairs], [p.moving for p in pairs], recipe="rigid")
    >>> [len(result.history) for result in results]
    [1, 1, 1]
    """
    if together is not None and together < 1:
        raise InputError(f"The number of pairs registered together must be at least 1, not {together}.")
    calls = _calls(fixed, moving, progress, stop, options)
    backend = None if _draws(options) else _company_backend(options)
    usual = TOGETHER if backend is None else TOGETHER_ON_DEVICE
    workers = 1 if _draws(options) else min(together or usual, max(len(calls), 1))
    found: list[Registration | None] = []
    with limited_threads(threads) as used, torch.random.fork_rng():
        pool = ThreadPoolExecutor(workers, initializer=_begin, initargs=(used, options.get("device", "cpu")))
        try:
            for wave in _waves(calls, workers, backend):
                futures = [_submitted(pool, *each) for each in wave]
                found += [_result(len(found) + k, future, on_error) for k, future in enumerate(futures)]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return tuple(result for result in found if result is not None)


def _company_backend(options: dict[str, Any]) -> kernels.Backend | None:
    """The backend, if pairs can be computed together on it."""
    try:
        found = kernels.choose(checked_device(options.get("device", "cpu")), options.get("backend", "auto"))
    except WarpfactorError:
        return None  # `register` says what is wrong
    return found if device_form(found.load()) is not None else None


def _waves(
    calls: list[dict[str, Any]], workers: int, backend: kernels.Backend | None
) -> list[list[tuple[dict[str, Any], Company | None]]]:
    """What is in flight: all calls, as threads become free, or so many at a time that are a company."""
    if backend is None:
        return [[(call, None) for call in calls]]
    waves: list[list[tuple[dict[str, Any], Company | None]]] = []
    for first in range(0, len(calls), workers):
        wave = calls[first : first + workers]
        company = Company(len(wave))
        together = replace(backend, load=partial(_accompanied, backend, company))
        waves.append([({**call, "backend": together}, company) for call in wave])
    return waves


def _accompanied(backend: kernels.Backend, company: Company) -> Ops:
    return cast(Ops, Accompanied(backend.load(), company))


def _on_cuda(device: Any) -> bool:
    return str(device).startswith("cuda") and torch.cuda.is_available()


def _begin(threads: int, device: Any) -> None:
    """What a thread does before its first pair: PyTorch and Triton launch on the stream that the thread has set."""
    numba.set_num_threads(threads)
    if _on_cuda(device):
        torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def _submitted(pool: ThreadPoolExecutor, call: dict[str, Any], company: Company | None) -> Future[Registration]:
    """A pair that is under way; it leaves its company however it ends, even if it never began."""
    future = pool.submit(_register, call)
    if company is not None:
        future.add_done_callback(lambda _: company.leave())
    return future


def _register(call: dict[str, Any]) -> Registration:
    """One pair; what its stream still does is waited for, as others will read the result."""
    found = register(**call)
    if _on_cuda(call.get("device", "cpu")):
        torch.cuda.current_stream(call["device"]).synchronize()
    return found


def _calls(fixed: Any, moving: Any, progress: BatchProgress | None, stop: Any, options: dict[str, Any]) -> list[Any]:
    """The arguments of `register` for each pair."""
    fixed, moving = _listed("fixed", fixed), _listed("moving", moving)
    count = len(fixed)
    stops = [stop] * count if stop is None or isinstance(stop, StopEvent) else stop
    given = {name: options[name] for name in PER_PAIR if options.get(name) is not None}
    for name, each in {"moving": moving, "stop": stops, **given}.items():
        if len(_listed(name, each)) != count:
            raise InputError(f"There are {count} fixed images and {len(each)} of {name}; give one for each pair.")
    tell, lock = progress, threading.Lock()

    def told(number: int) -> Callable[[Event], None] | None:
        if tell is None:
            return None

        def one_at_a_time(event: Event) -> None:
            with lock:
                tell(number, event)

        return one_at_a_time

    shared = {name: value for name, value in options.items() if name not in PER_PAIR}
    return [
        {
            **shared,
            **{name: each[number] for name, each in given.items()},
            "fixed": fixed[number],
            "moving": moving[number],
            "progress": told(number),
            "stop": stops[number],
        }
        for number in range(count)
    ]


def _listed(name: str, given: Any) -> Any:
    """The entries, one per pair; InputError for a single image, file or number."""
    if isinstance(given, (np.ndarray, Tensor)) and given.ndim > 2:
        return list(given)
    if isinstance(given, (list, tuple)):
        return given
    raise InputError(f"{name} must be a list with one entry for each pair, it is a single {type(given).__name__}.")


def _draws(options: dict[str, Any]) -> bool:
    """Whether somebody's own loss or term takes part: it may draw random numbers, which PyTorch has one source of."""
    recipe = find_recipe(options.get("recipe", "default")).replace(dict(options.get("overrides") or {}))
    built_in = recipe.deformable is None or type(recipe.deformable.metric) in METRICS.values()
    return bool(options.get("terms")) or not built_in


def _result(number: int, future: Future[Registration], on_error: OnError | None) -> Registration | None:
    try:
        return future.result()
    except WarpfactorError as error:
        named = type(error)(f"Pair {number}: {error}")
        if on_error is None:
            raise named from error
        on_error(number, named)
        return None

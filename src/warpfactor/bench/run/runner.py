"""Run every method on every case, each run in a fresh process, and keep the records in a folder.

The folder holds one file per run. Runs that exist are not repeated, so an interrupted benchmark resumes where it
stopped. A failed run is recorded with its reason and does not stop the others. Interrupting the runner ends its child
processes. Two runners may share a folder: each waits for the runs that the other is making.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import warpfactor
from warpfactor.bench.data.dataset import BenchCase
from warpfactor.bench.run.machine import cores, environment
from warpfactor.bench.run.method import OURS, Method
from warpfactor.bench.run.process import end
from warpfactor.bench.run.record import FAILED, PlannedRun, Run, plan_run, read_run, write_run
from warpfactor.bench.run.worker import REASON
from warpfactor.errors import FileError, InputError
from warpfactor.io.claims import claimed

RUNS, KEPT = "runs", "transforms"
_LOG_LINES = 15  # of the output of a failed run are kept
# Rooms of the package that do not influence the result of a registration.
_NOT_HASHED = ("bench", "checks", "cli", "show")


@dataclass(frozen=True)
class RunOptions:
    """How to run a benchmark.

    Attributes:
        jobs: Number of simultaneous runs. With more than one, measured times are longer.
        threads: Number of threads of each run (default: the cores divided by `jobs`).
        masks: Whether to register inside the masks of the cases.
        retry_failed: Whether to repeat runs that failed.
        again: Whether to repeat all runs.
        keep: Whether to keep the transforms, as .h5 files.
        timeout_s: Runs that take longer are ended and count as failed.
    """

    jobs: int = 1
    threads: int | None = None
    masks: bool = False
    retry_failed: bool = False
    again: bool = False
    keep: bool = False
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1 or (self.threads is not None and self.threads < 1):
            raise InputError("The number of jobs and the number of threads must be at least 1.")

    @property
    def threads_each(self) -> int:
        """Number of threads of each run."""
        return self.threads or max(1, cores() // self.jobs)


@dataclass(frozen=True)
class RunProgress:
    """Progress of a benchmark, reported at the start and after each run.

    Attributes:
        done: Number of existing runs, including those of earlier sessions.
        total: Number of all runs.
        fresh: Number of runs made in this session.
        run: The run that has just ended; None at the start.
    """

    done: int
    total: int
    fresh: int
    run: Run | None


Watcher = Callable[[RunProgress], None]


def run_all(
    cases: Sequence[BenchCase],
    methods: Sequence[Method],
    folder: Path,
    options: RunOptions | None = None,
    *,
    initials: Mapping[str, Path] | None = None,
    watch: Watcher | None = None,
) -> list[Run]:
    """Run every method on every case and return all runs, case by case.

    Args:
        cases: What to register.
        methods: How to register it.
        folder: Folder of the results; it is created if necessary.
        options: How to run.
        initials: By name of the case, the file of a transform (fixed to moving) to start from. Other tools ignore it.
        watch: Called at the start and after every run.
    """
    how = options or RunOptions()
    for method in methods:
        method.check(cases, masks=how.masks)
    starts = initials or {}
    plans = [plan_run(c, m, masks=how.masks, initial=starts.get(c.name)) for c in cases for m in methods]
    found = {plan.key: run for plan in plans if (run := _existing(plan, folder, how)) is not None}
    missing = list({plan.key: plan for plan in plans if plan.key not in found}.values())
    make_folder(folder / RUNS)
    total = len({plan.key for plan in plans})
    tell = watch or (lambda _: None)
    tell(RunProgress(len(found), total, 0, None))
    with closing(_run_missing(missing, folder, how)) as finished:  # nothing keeps running if `watch` raises
        for fresh, (plan, run) in enumerate(finished, start=1):
            found[plan.key] = run
            tell(RunProgress(len(found), total, fresh, run))
    return [_as_named(found[plan.key], plan) for plan in plans]


def make_folder(folder: Path) -> None:
    """Create a folder for results, or raise a FileError before hours of work are lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be created ({error.strerror or error}).") from error
    if not os.access(folder, os.W_OK):
        raise FileError(f"{folder}: the folder is not writable; choose another folder.")


def kept_transform(plan: PlannedRun, folder: Path) -> Path:
    """File to which a run with the option `keep` writes its transform."""
    return folder / KEPT / f"{Path(plan.file_name).stem}.h5"


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash of the source files that influence a registration; it distinguishes states of the same version."""
    root = Path(warpfactor.__file__).parent
    files = [path for path in sorted(root.rglob("*.py")) if path.relative_to(root).parts[0] not in _NOT_HASHED]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def cautions(runs: Sequence[Run]) -> list[str]:
    """Sentences that warn the reader of a page about unexpected properties of its runs."""
    old, unused = made_by_other_code(runs), [f"{run.method} on {run.case}" for run in runs if run.warp_discarded]
    found = [f"{old} runs were made by another state of the code than this page."] if old else []
    if unused:
        found.append(
            "In these runs the warp raised the cost at full resolution and was discarded, so the initial transform is "
            f"scored: {', '.join(unused)}."
        )
    return found


def made_by_other_code(runs: Sequence[Run]) -> int:
    """Number of finished runs of our own methods that were made by another state of the code."""
    return sum(run.done and run.entries.get("tool") == OURS and run.entries.get("code") != code_hash() for run in runs)


def _existing(plan: PlannedRun, folder: Path, how: RunOptions) -> Run | None:
    if how.again or (how.keep and not kept_transform(plan, folder).exists()):
        return None
    run = read_run(folder / RUNS / plan.file_name) or _under_another_label(plan, folder)
    return None if run is None or (how.retry_failed and not run.done) else run


def _under_another_label(plan: PlannedRun, folder: Path) -> Run | None:
    """A run with the same settings on the same files that was made under another label, or None."""
    others = sorted((folder / RUNS).glob(f"*--{plan.key}.json"))
    return next((run for run in map(read_run, others) if run is not None), None)


def _as_named(run: Run, plan: PlannedRun) -> Run:
    """The run under the names that are requested now."""
    return replace(run, case=plan.case.name, group=plan.case.group, method=plan.method.label)


def _run_missing(
    missing: Sequence[PlannedRun], folder: Path, how: RunOptions
) -> Generator[tuple[PlannedRun, Run], None, None]:
    """Make the missing runs; yield each plan with its run as soon as it has ended."""
    if not missing:
        return
    processes = _Processes()
    with ThreadPoolExecutor(how.jobs) as pool:
        try:
            running: dict[Future[Run], PlannedRun] = {
                pool.submit(_run_one, j, folder, how, processes): j for j in missing
            }
            while running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield running.pop(future), future.result()
        except BaseException:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise


class _Processes:
    """The running child processes, so that all of them can be stopped at once."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self.stopped = False

    def start(self, log: IO[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        with self._lock:
            if self.stopped:
                raise RuntimeError("the benchmark was stopped")
            process = subprocess.Popen(
                [sys.executable, "-m", "warpfactor.bench.run.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=dict(environment),
                start_new_session=True,  # Ctrl-C in a terminal reaches only this process, which ends the others
            )
            self._running.add(process)
            return process

    def forget(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for process in self._running:
                end(process)


def _run_one(plan: PlannedRun, folder: Path, how: RunOptions, processes: _Processes) -> Run:
    """Make a run, unless another benchmark has made it in the meantime.

    A run in which kernels were compiled is repeated, because the compilation would count as its time.
    """
    with claimed(folder / RUNS / plan.key, lambda: processes.stopped):
        made = _existing(plan, folder, how)
        run = made or _run_once(plan, folder, how, processes)
        compiled = made is None and run.entries.get("compiled_kernels")
        return _run_once(plan, folder, how, processes) if compiled else run


def _run_once(plan: PlannedRun, folder: Path, how: RunOptions, processes: _Processes) -> Run:
    """Make a run in a process of its own and return its record; a failure is recorded too."""
    output = folder / RUNS / plan.file_name
    output.unlink(missing_ok=True)
    request = _request(plan, folder, how)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = processes.start(log, environment(how.threads_each))
        try:
            process.communicate(json.dumps(request), timeout=how.timeout_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            end(process)
            process.wait()
            code = None
        finally:
            processes.forget(process)
        if processes.stopped:
            raise RuntimeError("the benchmark was stopped")
        run = read_run(output) if code == 0 else None
        if run is None:
            log.seek(0)
            _write_failure(request, code, log.read().splitlines(), output)
            run = read_run(output)
    if run is None:
        raise FileError(f"{output}: the record was written but cannot be read; check whether the disk is full.")
    return run


def _request(plan: PlannedRun, folder: Path, how: RunOptions) -> dict[str, Any]:
    return {
        "key": plan.key,
        "code": code_hash(),
        "case": BenchCase.to_dict(plan.case),
        "method": plan.method.label,
        "tool": plan.method.tool,
        "settings": dict(plan.settings),
        "masks": plan.masks,
        "initial": None if plan.initial is None else str(plan.initial),
        "threads": how.threads_each,
        "jobs": how.jobs,
        "output": str(folder.absolute() / RUNS / plan.file_name),
        "keep": str(kept_transform(plan, folder.absolute())) if how.keep else None,
    }


def _write_failure(request: Mapping[str, Any], code: int | None, log: Sequence[str], output: Path) -> None:
    said = [line.removeprefix(REASON) for line in log if line.startswith(REASON)]
    if said:
        reason = said[-1]
    elif code is None:
        reason = "The run exceeded the time limit."
    elif code < 0:
        reason = f"The process was killed by signal {-code}; signal 9 usually means that the machine ran out of memory."
    else:
        reason = f"The process ended with exit code {code}: {log[-1] if log else 'no output'}"
    entries = {name: part for name, part in request.items() if name not in ("output", "keep")}
    write_run({**entries, "status": FAILED, "reason": reason, "log": list(log[-_LOG_LINES:])}, output)

"""The runner: every case with every method, each in a fresh process, and a folder from which it can go on.

The folder holds one file per run. What is there already is not run again; a run that failed is recorded with its reason
and does not stop the others. Stopping the runner, by Ctrl-C or otherwise, stops its processes; the next start goes on
from the folder. Two runners may share a folder: one waits for the run that the other makes and takes it.
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
from warpfactor.bench.data.dataset import Case
from warpfactor.bench.run.machine import cores, environment
from warpfactor.bench.run.method import OURS, Method
from warpfactor.bench.run.process import claimed, end
from warpfactor.bench.run.run import FAILED, Job, Run, make_job, read_run, write_run
from warpfactor.bench.run.worker import REASON
from warpfactor.errors import FileError, InputError

RUNS, KEPT = "runs", "transforms"
_LOG_LINES = 15  # kept of a run that failed
_SOURCES = ("kernels", "optim", "register", "similarity", "grid.py", "image.py", "resample.py", "transform.py", "io")


@dataclass(frozen=True)
class Options:
    """How to run.

    Attributes:
        jobs: runs at the same time. With more than one, times are longer than they would be alone.
        threads: of each run; without, the cores shared equally.
        masks: register inside the masks of the cases.
        retry_failed: run again what failed.
        again: run everything again.
        keep: keep the transforms of the runs, as .h5.
        timeout_s: end a run that takes longer, and call it failed.
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
            raise InputError("Give at least one job and at least one thread.")

    @property
    def threads_each(self) -> int:
        return self.threads or max(1, cores() // self.jobs)


@dataclass(frozen=True)
class Progress:
    """Where a benchmark is, after each run.

    Attributes:
        done: runs that are there, old ones included.
        total: of all.
        fresh: made now.
        run: the one that was just finished; None at the beginning.
    """

    done: int
    total: int
    fresh: int
    run: Run | None


Watcher = Callable[[Progress], None]


def run_all(
    cases: Sequence[Case],
    methods: Sequence[Method],
    folder: Path,
    options: Options | None = None,
    *,
    initials: Mapping[str, Path] | None = None,
    watch: Watcher | None = None,
) -> list[Run]:
    """Every case with every method; the runs, old and new, case by case, so that a stopped benchmark has whole cases.

    Args:
        folder: of the results; made if missing.
        initials: by case name, a transform to start from (fixed to moving); recipes then need no affine, and peers, who
            have their own, do without it.
        watch: called at the beginning and after every run.
    """
    how = options or Options()
    for method in methods:
        method.check(cases, masks=how.masks)
    starts = initials or {}
    jobs = [make_job(c, m, masks=how.masks, initial=starts.get(c.name)) for c in cases for m in methods]
    found = {job.key: run for job in jobs if (run := _existing(job, folder, how)) is not None}
    missing = list({job.key: job for job in jobs if job.key not in found}.values())
    make_folder(folder / RUNS)
    total = len({job.key for job in jobs})
    tell = watch or (lambda _: None)
    tell(Progress(len(found), total, 0, None))
    with closing(_run_missing(missing, folder, how)) as finished:  # so that nothing runs on if `watch` raises
        for fresh, (job, run) in enumerate(finished, start=1):
            found[job.key] = run
            tell(Progress(len(found), total, fresh, run))
    return [_as_named(found[job.key], job) for job in jobs]


def make_folder(folder: Path) -> None:
    """Make a folder for results, or say why that cannot be, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: the folder cannot be made ({error.strerror or error}).") from error
    if not os.access(folder, os.W_OK):
        raise FileError(f"{folder}: the folder is not writable; choose another one.")


def kept_transform(job: Job, folder: Path) -> Path:
    """Where a run with `keep` leaves its transform."""
    return folder / KEPT / f"{Path(job.file_name).stem}.h5"


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Hash of the sources that decide our own results: tells apart runs of one version before a release."""
    root = Path(warpfactor.__file__).parent
    places = [root / name for name in _SOURCES]
    files = [f for place in places for f in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def cautions(runs: Sequence[Run]) -> list[str]:
    """Sentences on what a reader of these runs would not guess."""
    old, unused = made_by_other_code(runs), [f"{run.method} on {run.case}" for run in runs if run.left_out]
    found = [f"{old} runs of ours were made by other code of warpfactor than wrote this page."] if old else []
    if unused:
        found.append(
            "In these runs the warp had a higher cost at full resolution than its start and was left out, so that the "
            f"start is scored: {', '.join(unused)}."
        )
    return found


def made_by_other_code(runs: Sequence[Run]) -> int:
    """How many finished runs of ours come from other sources than are installed now."""
    return sum(run.done and run.entries.get("tool") == OURS and run.entries.get("code") != code_hash() for run in runs)


def _existing(job: Job, folder: Path, how: Options) -> Run | None:
    if how.again or (how.keep and not kept_transform(job, folder).exists()):
        return None
    run = read_run(folder / RUNS / job.file_name) or _under_another_label(job, folder)
    return None if run is None or (how.retry_failed and not run.done) else run


def _under_another_label(job: Job, folder: Path) -> Run | None:
    """The same settings on the same files may have been run under another name."""
    others = sorted((folder / RUNS).glob(f"*--{job.key}.json"))
    return next((run for run in map(read_run, others) if run is not None), None)


def _as_named(run: Run, job: Job) -> Run:
    """The run under the names it was asked for now."""
    return replace(run, case=job.case.name, group=job.case.group, method=job.method.label)


def _run_missing(missing: Sequence[Job], folder: Path, how: Options) -> Generator[tuple[Job, Run], None, None]:
    """Each job with its run, as they are finished."""
    if not missing:
        return
    processes = _Processes()
    with ThreadPoolExecutor(how.jobs) as pool:
        try:
            running: dict[Future[Run], Job] = {pool.submit(_run_one, j, folder, how, processes): j for j in missing}
            while running:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield running.pop(future), future.result()
        except BaseException:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise


class _Processes:
    """The processes that run now, so that all can be stopped at once."""

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
                start_new_session=True,  # Ctrl-C in a terminal is ours to pass on
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


def _run_one(job: Job, folder: Path, how: Options, processes: _Processes) -> Run:
    """The run of a job, unless another benchmark made it meanwhile.

    It is made once more if kernels were compiled in it, whose time would count.
    """
    with claimed(folder / RUNS / job.key, lambda: processes.stopped):
        made = _existing(job, folder, how)
        run = made or _run_once(job, folder, how, processes)
        compiled = made is None and run.entries.get("compiled_kernels")
        return _run_once(job, folder, how, processes) if compiled else run


def _run_once(job: Job, folder: Path, how: Options, processes: _Processes) -> Run:
    """Run a job in its own process and return what it left; a failure is written down."""
    output = folder / RUNS / job.file_name
    output.unlink(missing_ok=True)
    request = _request(job, folder, how)
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
        raise FileError(f"{output}: was written and cannot be read; is the disk full?")
    return run


def _request(job: Job, folder: Path, how: Options) -> dict[str, Any]:
    return {
        "key": job.key,
        "code": code_hash(),
        "case": Case.to_dict(job.case),
        "method": job.method.label,
        "tool": job.method.tool,
        "settings": dict(job.settings),
        "masks": job.masks,
        "initial": None if job.initial is None else str(job.initial),
        "threads": how.threads_each,
        "jobs": how.jobs,
        "output": str(folder.absolute() / RUNS / job.file_name),
        "keep": str(kept_transform(job, folder.absolute())) if how.keep else None,
    }


def _write_failure(request: Mapping[str, Any], code: int | None, log: Sequence[str], output: Path) -> None:
    said = [line.removeprefix(REASON) for line in log if line.startswith(REASON)]
    if said:
        reason = said[-1]
    elif code is None:
        reason = "It took longer than it was given."
    elif code < 0:
        reason = f"The process was killed by signal {-code}; signal 9 usually means that the memory was full."
    else:
        reason = f"The process ended with code {code}: {log[-1] if log else 'it said nothing'}"
    entries = {name: part for name, part in request.items() if name not in ("output", "keep")}
    write_run({**entries, "status": FAILED, "reason": reason, "log": list(log[-_LOG_LINES:])}, output)

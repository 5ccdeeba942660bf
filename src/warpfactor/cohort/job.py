"""What a worker does for one row: claim it, register, save; a failure is recorded and never raised."""

from __future__ import annotations

import errno
import math
import shutil
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from warpfactor.cohort.derivatives import write_derivatives
from warpfactor.cohort.engine.engine import DIED
from warpfactor.cohort.identity import Identity, identify
from warpfactor.cohort.store import DERIVATIVES, ENTRY, Store
from warpfactor.cohort.table.row import CohortRow, stem
from warpfactor.errors import FileError, WarpfactorError
from warpfactor.io import read_image, write_image
from warpfactor.io.points import read_landmark_files
from warpfactor.kernels import choose
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.companions import Companions, check_places
from warpfactor.registration.folder import read_entries
from warpfactor.registration.inputs import Images
from warpfactor.registration.resources import checked_device, named_device
from warpfactor.registration.run import register

DONE, FAILED = "done", "failed"
POSTPONED = "postponed"  # the disk was full; the row is tried again after the others
MOST_DEATHS = 4  # of workers over one row
CARRIED = "carried_{stem}.nii.gz"
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk says nothing about a row
_ROOM_BYTES = 32 << 20  # less than that is no room for a result
_ALONE = threading.Lock()  # a worker with several threads still registers one row at a time


@dataclass(frozen=True)
class JobOptions:
    """How rows are registered, besides their recipes.

    Attributes:
        device, backend: where and by which kernels to compute.
        landmarks_weight: how strongly landmarks pull; 0 only scores them.
        threads: of each registration; it does not change results.
        report: whether to write report.html; without reports a run has no summary page.
    """

    device: str = "cpu"
    backend: str = "auto"
    landmarks_weight: float = 0.0
    threads: int = 1
    report: bool = True

    def deciding(self) -> dict[str, Any]:
        """The options that can change a result, as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "threads"}


def option_problems(options: JobOptions, *, here: bool) -> Iterator[str]:
    """What is wrong with options, one sentence each.

    Args:
        options: of a run.
        here: whether the workers are processes of this machine, so that they have its devices.
    """
    try:
        device = checked_device(options.device) if here else named_device(options.device)
        choose(device, options.backend)
    except WarpfactorError as error:
        yield str(error)
    if not 0 <= options.landmarks_weight < math.inf:
        yield f"The weight of the landmarks must be 0 or more, not {options.landmarks_weight:g}."


@dataclass(frozen=True)
class RowJob:
    """One row, ready to be sent to a worker.

    Attributes:
        row: with absolute paths.
        recipe: of the row.
        options: of the run.
        output: folder of the cohort, absolute.
    """

    row: CohortRow
    recipe: Recipe
    options: JobOptions
    output: Path

    @property
    def name(self) -> str:
        return self.row.name

    def identity(self, known: Identity | None = None) -> Identity:
        """What the result of this row would be made of now."""
        return identify(self.row, self.recipe.to_dict(), self.options.deciding(), known)


@dataclass(frozen=True)
class Outcome:
    """How a row ended.

    Attributes:
        name: of the row.
        state: "done", "failed", or "postponed" if the disk was full.
        reason: why it is not done.
        seconds: spent on it by the worker; 0 if the result was there already.
        verdict: level of the verdict of a finished row.
        warnings: what was found odd about the input.
    """

    name: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    verdict: str = ""
    warnings: tuple[str, ...] = field(default_factory=tuple)


def do_row(job: RowJob) -> Outcome:
    """Register a row into its folder, unless that has happened in the meantime."""
    began = time.perf_counter()
    with _ALONE, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            _do(job, Store(job.output))
        except Exception as error:  # whatever goes wrong with one row, the others go on
            return _failed(job, error, time.perf_counter() - began)
    told = tuple(dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning)))
    verdict = verdict_of(job.output / job.name)
    return Outcome(job.name, DONE, "", time.perf_counter() - began, verdict, told)


def _do(job: RowJob, store: Store) -> None:
    store.prepare()
    with store.claim(job.name):
        known = store.finished(job.name)
        identity = job.identity(known)
        if known is None or known.key != identity.key:
            if store.deaths(job.name) >= MOST_DEATHS:
                raise WarpfactorError(DIED)
            with store.tried(job.name):
                _register(job, identity, store)
        store.forget_failure(job.name)


def verdict_of(folder: Path) -> str:
    """Level of the verdict of a result; empty without a report."""
    found: Mapping[str, Any] = read_result_entries(folder).get("verdict") or {}
    return str(found.get("level", ""))


def read_result_entries(folder: Path) -> dict[str, Any]:
    """The content of a result.json; empty if it cannot be read."""
    try:
        return read_entries(folder)
    except WarpfactorError:
        return {}


def _register(job: RowJob, identity: Identity, store: Store) -> None:
    row, options = job.row, job.options
    companions = _CompanionFiles(row)
    found = register(
        _one_or_several(row.fixed),
        _one_or_several(row.moving),
        recipe=job.recipe,
        fixed_mask=row.fixed_mask,
        moving_mask=row.moving_mask,
        initial=[str(path) for path in row.initial] or None,
        device=options.device,
        backend=options.backend,
        threads=options.threads,
        on_read=companions.read,
        **_guides(row, options),
    )
    folder = store.result(row.name)
    for path in row.carry:
        write_image(found.apply(path), folder / CARRIED.format(stem=stem(path)), force=True)
    if row.bids is not None:
        write_derivatives(found, row, job.output / DERIVATIVES, companions.found)
    found.save(
        folder,
        force=True,
        report=options.report,
        companions=companions.found,
        extra={ENTRY: identity.to_dict()},
    )


def _guides(row: CohortRow, options: JobOptions) -> dict[str, Any]:
    """The arguments of `register` about landmarks that guide it."""
    if row.fixed_landmarks is None or options.landmarks_weight == 0:
        return {}
    points: Any = row.fixed_landmarks
    if row.moving_landmarks is not None:
        grids = (read_image(side[0]).grid for side in (row.fixed, row.moving))
        points = read_landmark_files(row.fixed_landmarks, row.moving_landmarks, *grids)
    return {"landmarks": points, "landmarks_weight": options.landmarks_weight}


@dataclass
class _CompanionFiles:
    """Reads the label maps and landmarks of a row when its images are known."""

    row: CohortRow
    found: Companions | None = None

    def read(self, images: Images) -> None:
        row = self.row
        both = None if row.moving_landmarks else row.fixed_landmarks
        given = (row.fixed_labels, row.moving_labels, both)
        if any(path is not None for path in given):
            self.found = Companions.read(*given, fixed=images.fixed, moving=images.moving)
        if row.fixed_landmarks is not None and row.moving_landmarks is not None:
            grids = images.fixed.grid, images.moving.grid
            points = read_landmark_files(row.fixed_landmarks, row.moving_landmarks, *grids)
            check_places(f"{row.fixed_landmarks} and {row.moving_landmarks}", points, *grids)
            self.found = replace(self.found or Companions(), landmarks=points)


def _one_or_several(paths: tuple[Path, ...]) -> Any:
    return paths[0] if len(paths) == 1 else list(paths)


def _failed(job: RowJob, error: Exception, seconds: float) -> Outcome:
    """The outcome of a row that failed, which is recorded unless the disk is to blame."""
    reason = str(error) if isinstance(error, WarpfactorError) else f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        reason = "The worker ran out of memory; give it more with --memory-per-worker, or start fewer workers."
    if _disk_is_full(error, job.output):
        return Outcome(job.name, POSTPONED, f"The disk is full. {' '.join(reason.split())}", seconds)
    record_failure(job, reason, "".join(traceback.format_exception(error)))
    return Outcome(job.name, FAILED, " ".join(reason.split()), seconds)


def record_failure(job: RowJob, reason: str, details: str = "") -> None:
    """Write the record of a row that failed; a later run skips it while nothing about it has changed.

    A record that cannot be written only means that the row is tried again.
    """
    entries: dict[str, Any] = {"name": job.name, "reason": reason, "details": details}
    with suppress(WarpfactorError, OSError):
        entries[ENTRY] = job.identity().to_dict()
    with suppress(WarpfactorError, OSError):
        Store(job.output).write_failure(job.name, entries)


def _disk_is_full(error: BaseException | None, folder: Path) -> bool:
    """Whether an error comes of a full disk; ITK and HDF5 do not say so, hence the look at the disk itself."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if isinstance(error, FileError) and _room(folder) < _ROOM_BYTES:
            return True
        error = error.__cause__
    return False


def _room(folder: Path) -> float:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return math.inf

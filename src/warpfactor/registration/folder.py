"""Result folders: the one way to save a result, and to read it back."""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform, Warp
from warpfactor.geometry.velocity import Velocity
from warpfactor.io import (
    atomic_folder,
    atomic_path,
    read_image,
    read_transform,
    run_together,
    write_image,
    write_labels,
    write_transform,
)
from warpfactor.io.jsontext import json_text
from warpfactor.io.transforms import ANTS_AFFINE, ANTS_INVERSE_WARP, ANTS_WARP, VELOCITY, read_velocity, write_velocity
from warpfactor.kernels import select
from warpfactor.kernels.buffers import give_back_memory
from warpfactor.kernels.ops import Ops
from warpfactor.registration.apply import apply_to_image, apply_to_points
from warpfactor.registration.provenance import verdict_entry
from warpfactor.registration.record import (
    WARPED,
    WARPED_LABELS,
    WARPED_ZARR,
    entries_of,
    grid_from_dict,
    upgraded,
    warped_name,
)
from warpfactor.registration.resources import peak_memory_mb
from warpfactor.registration.streaming import Resampling, write_resampled
from warpfactor.show.report.summary import REPORT, RESULT

if TYPE_CHECKING:
    from warpfactor.registration.companions import Companions
    from warpfactor.registration.result import Registration
    from warpfactor.show.report import Report

_log = logging.getLogger(__name__)
# All files that a result folder may contain from an earlier run; result.json marks a complete folder and comes last.
OWN = (WARPED, WARPED_ZARR, WARPED_LABELS, ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP, VELOCITY, REPORT, RESULT)


def save_result(
    result: Registration,
    folder: str | Path,
    *,
    force: bool,
    report: bool,
    companions: Companions | None,
    extra: Mapping[str, Any] | None,
) -> Path:
    """Write a result into a folder; see Registration.save."""
    prints = result.run.prints
    inputs = {
        name: {**_located(Path(folder), path), **prints.get(name, {})} for name, path in result.run.sources.items()
    }
    added: dict[str, Any] = {**({"inputs": inputs} if inputs else {}), **(extra or {})}
    with atomic_folder(folder, force=force, own=OWN) as place:
        clock = _SavingClock(result)
        if companions is not None:
            added = _merged(added, _write_companions(result, companions, place))
            clock.lap("labels and landmarks")
        cached = companions is None and not extra
        page = _try_report(result if cached else clock.result, None if cached else added) if report else None
        if page is not None:
            (place / REPORT).write_text(page.html, encoding="utf-8")
            added = _merged(added, {"files": {"report": REPORT}})
            clock.lap("report")
        give_back_memory()  # what the stages and the report have freed, before files are encoded
        _write_volumes(result, place)
        clock.lap("write")
        entries = _merged(entries_of(clock.result), added)
        if page is not None:
            entries["verdict"] = verdict_entry(page.verdict, entries, place)
        (place / RESULT).write_text(json_text(entries), encoding="utf-8")
    _log.info("wrote the result into %s", folder)
    return Path(folder)


class _SavingClock:
    """Adds the time of each part of saving to a result.

    Attributes:
        result: with the times so far.
    """

    def __init__(self, result: Registration) -> None:
        self.result = result
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to `part`."""
        now = time.perf_counter()
        run = replace(self.result.run.with_seconds(part, now - self._last), peak_memory_mb=peak_memory_mb())
        self.result, self._last = replace(self.result, run=run), now


def _write_companions(result: Registration, companions: Companions, place: Path) -> dict[str, Any]:
    """Write the labels that were carried along; the scores and files for result.json."""
    carried = companions.carry(result)
    entries = companions.scores(result, carried)
    if carried is not None:
        write_labels(carried, place / WARPED_LABELS, like=companions.moving_labels_path)
        entries["files"] = {"warped_moving_labels_on_fixed_grid": WARPED_LABELS}
    return entries


def _try_report(result: Registration, added: Mapping[str, Any] | None) -> Report | None:
    """The report, with more entries or as it is cached; a failure is only a warning, to save the rest of the result."""
    from warpfactor.registration.report import report_of

    try:
        return result.report() if added is None else report_of(result, extra=added)
    except Exception as error:  # whatever goes wrong
        text = f"The report could not be made ({type(error).__name__}: {error}); the result is complete without it."
        warnings.warn(text, stacklevel=4)
        return None


def _write_volumes(result: Registration, place: Path) -> None:
    """Write the warped image and the transforms, in parallel; a large image is computed while it is written."""
    jobs = [] if result.full is not None else [partial(write_image, result.warped, place / WARPED)]
    for transform, name in (
        (result.warp, ANTS_WARP),
        (result.inverse_warp, ANTS_INVERSE_WARP),
        (result.affine, ANTS_AFFINE),
    ):
        if transform is not None:
            jobs.append(partial(write_transform, transform, place / name))
    if result.velocity is not None:
        jobs.append(partial(write_velocity, result.velocity, place / VELOCITY))
    run_together(jobs, result.run.threads)
    if result.full is not None:
        outside, ops = result.run.outside, result.ops
        work = Resampling(result.transform, result.full.moving, result.full.fixed.grid, "linear", outside, ops)
        write_resampled(work, place / warped_name(result))


def _merged(entries: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Entries with more of them; two mappings of the same name are merged."""
    merged = dict(entries)
    for key, value in added.items():
        known = merged.get(key)
        merged[key] = {**known, **value} if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return merged


def _located(folder: Path, path: Path) -> dict[str, str | None]:
    """Where an input is: absolute, and relative to the result folder, so that both can be moved together."""
    absolute = path.absolute()
    try:
        relative = Path(os.path.relpath(absolute, folder.absolute())).as_posix()
    except ValueError:  # on another drive
        relative = None
    return {"path": str(absolute), "path_from_result": relative}


@dataclass(frozen=True, repr=False)
class SavedResult:
    """A result that was read from a folder.

    It applies its transform as a Registration does; recipe, figures and history are in `entries`, as result.json has
    them: `entries["figures"]`, `entries["recipe"]`.

    Attributes:
        folder: the result folder.
        transform: maps points of fixed space to moving space, and resamples images of moving space onto fixed grids.
        fixed_grid, moving_grid: the grids of the two images.
        entries: the content of result.json.
        single: whether fields are kept in single precision.
    """

    folder: Path
    transform: Transform
    fixed_grid: Grid
    moving_grid: Grid
    entries: dict[str, Any]
    single: bool = False

    def __repr__(self) -> str:
        names = (self.entries[side].get("name", side) for side in ("moving", "fixed"))
        recipe = self.entries.get("recipe", {}).get("name", "")
        return f"SavedResult({self.folder}: {' onto '.join(names)}, {recipe}; {self.entries.get('status', '')})"

    def __getattr__(self, name: str) -> Any:
        """The error for an attribute that only a Registration has."""
        raise AttributeError(
            f"A saved result has no attribute {name!r}; the content of result.json is in `entries`, "
            "for instance entries['figures']."
        )

    @cached_property
    def inverse(self) -> Transform:
        """Maps points of moving space to fixed space; read from its file when it is first used."""
        affine = f"[{self.folder / ANTS_AFFINE},1]"
        parts: list[str | Path] = [affine] if self.warp is None else [affine, self.folder / ANTS_INVERSE_WARP]
        return read_transform(parts, source="moving", target="fixed", single=self.single)

    @property
    def warp(self) -> Warp | None:
        """The warp before the affine, if there is one."""
        return next((part for part in self.transform.parts if isinstance(part, Warp)), None)

    @cached_property
    def velocity(self) -> Velocity | None:
        """The field of which the warp is the exponential, if there is one; read from its file when it is first used."""
        path = self.folder / VELOCITY
        return read_velocity(path) if path.exists() else None

    @cached_property
    def warped(self) -> Image:
        """The warped moving image; read from its file when it is first used."""
        return read_image(self.folder / self.entries["files"]["warped_moving_on_fixed_grid"])

    @property
    def ops(self) -> Ops:
        """The fastest backend of the CPU."""
        return select()

    def apply(
        self,
        image: Any,
        *,
        to: str = "fixed",
        mode: str = "linear",
        outside: float | None = None,
        grid: Grid | None = None,
    ) -> Image:
        """Resample another image of one space to the other; see Registration.apply."""
        return apply_to_image(self, image, to=to, mode=mode, outside=outside, grid=grid)

    def apply_points(self, points: ArrayLike, *, to: str = "fixed") -> Points:
        """Map points of one space to the other; see Registration.apply_points."""
        return apply_to_points(self, points, to=to)

    def to_dict(self) -> dict[str, Any]:
        """The content of result.json."""
        return self.entries


def read_result(folder: str | Path, *, single: bool = False) -> SavedResult:
    """Read the result that `Registration.save` or `warpfactor register` wrote into a folder.

    With `single` displacement fields stay in single precision, as their files hold them, in half the memory.

    >>> import tempfile
    >>> import warpfactor as wf
    >>> made = wf.phantom.phantom((24, 26, 24))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     wf.register(made.fixed, made.moving, recipe="affine").save(f"{place}/out", report=False).name
    ...     wf.read_result(f"{place}/out").fixed_grid.shape
    'out'
    (24, 26, 24)
    """
    place = Path(folder)
    entries = read_entries(place)
    warped = entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"] is not None
    affine = place / ANTS_AFFINE
    forward: list[str | Path] = [place / ANTS_WARP, affine] if warped else [affine]
    return SavedResult(
        folder=place,
        transform=read_transform(forward, source="fixed", target="moving", single=single),
        fixed_grid=grid_from_dict(entries["fixed"]),
        moving_grid=grid_from_dict(entries["moving"]),
        entries=entries,
        single=single,
    )


def read_entries(place: Path) -> dict[str, Any]:
    """The content of result.json of a folder, in the current format; FileError if there is none."""
    path = place / RESULT
    if not path.is_file():
        raise FileError(f"{place}: is not a result folder, because it contains no {RESULT}.")
    try:
        entries = upgraded(json.loads(path.read_text(encoding="utf-8")))
        for side in ("fixed", "moving"):
            grid_from_dict(entries[side])
        entries["files"]["fixed_to_moving_warp_before_affine_lps_mm"]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, InputError) as error:
        raise FileError(f"{path}: is damaged or was not written by warpfactor ({error}).") from error
    return entries


def write_entries(place: Path, entries: Mapping[str, Any]) -> None:
    """Replace the result.json of a folder."""
    with atomic_path(place / RESULT, force=True) as temporary:
        temporary.write_text(json_text(entries), encoding="utf-8")

"""How much memory a registration needs, estimated from the headers of its images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from warpfactor.cohort.engine.settings import EngineSettings
from warpfactor.cohort.table.check import header_shape
from warpfactor.cohort.table.row import CohortRow
from warpfactor.errors import InputError, WarpfactorError
from warpfactor.memory import available_bytes, shown_bytes

# The high-water mark of whole runs with the default recipe and one thread, report and writing included, was 501 MB for
# 48^3 voxels (phantoms, both images), 552 MB for 96^3 and 717 MB for 160^3: 495 MB and 57 bytes for each voxel. What
# stands here is a third more, for recipes that hold more and for other systems.
PROCESS_BYTES = 640 << 20
FIXED_BYTES = 60  # per voxel of the fixed image and channel
MOVING_BYTES = 16
MEASURED = 0.75  # of the estimate: what was measured, below which a worker would be ended
UNKNOWN_VOXELS = 256**3  # of a folder of DICOM files
RESERVED = 0.1  # share of the available memory that is left to others
UNKNOWN_BYTES = 8 << 30  # available on a system that does not tell


def row_bytes(row: CohortRow) -> int:
    """Estimated peak memory of a row's registration."""
    fixed, moving = _voxels(row.fixed[0]), _voxels(row.moving[0])
    return PROCESS_BYTES + len(row.fixed) * FIXED_BYTES * fixed + len(row.moving) * MOVING_BYTES * moving


def memory_problems(rows: Sequence[CohortRow], engine: EngineSettings) -> Iterator[str]:
    """Whether the workers' memory is too little for the largest row, in a sentence."""
    try:
        limit = engine.memory_bytes
    except InputError:  # the engine says so
        limit = None
    there = [row for row in rows if row.fixed[0].exists() and row.moving[0].exists()]
    if limit is None or not there:
        return
    largest = max(there, key=row_bytes)
    least = int(MEASURED * row_bytes(largest))
    if least > limit:
        yield (
            f"{shown_bytes(limit)} of memory are too little for a worker: {largest.name} needs about "
            f"{shown_bytes(least)}; give more with --memory-per-worker, or leave that out."
        )


def machine_bytes() -> int:
    """Memory of this machine that workers may use together: what is available now, without a reserve."""
    return int((1 - RESERVED) * (available_bytes() or UNKNOWN_BYTES))


def _voxels(path: Path) -> int:
    try:
        shape = header_shape(path)
    except WarpfactorError:
        shape = None
    return UNKNOWN_VOXELS if shape is None else math.prod(shape)

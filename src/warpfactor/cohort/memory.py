"""How much memory a registration needs, estimated from the headers of its images."""

from __future__ import annotations

import math
from pathlib import Path

from warpfactor.cohort.table.check import header_shape
from warpfactor.cohort.table.row import CohortRow
from warpfactor.errors import WarpfactorError
from warpfactor.memory import available_bytes

# The high-water mark of whole runs with the default recipe and one thread, report and writing included, was 501 MB for
# 48^3 voxels (phantoms, both images), 552 MB for 96^3 and 717 MB for 160^3: 495 MB and 57 bytes for each voxel. What
# stands here is a third more, for recipes that hold more and for other systems.
PROCESS_BYTES = 640 << 20
FIXED_BYTES = 60  # per voxel of the fixed image and channel
MOVING_BYTES = 16
UNKNOWN_VOXELS = 256**3  # of a folder of DICOM files
RESERVED = 0.1  # share of the available memory that is left to others
UNKNOWN_BYTES = 8 << 30  # available on a system that does not tell


def row_bytes(row: CohortRow) -> int:
    """Estimated peak memory of a row's registration."""
    fixed, moving = _voxels(row.fixed[0]), _voxels(row.moving[0])
    return PROCESS_BYTES + len(row.fixed) * FIXED_BYTES * fixed + len(row.moving) * MOVING_BYTES * moving


def machine_bytes() -> int:
    """Memory of this machine that workers may use together: what is available now, without a reserve."""
    return int((1 - RESERVED) * (available_bytes() or UNKNOWN_BYTES))


def _voxels(path: Path) -> int:
    try:
        shape = header_shape(path)
    except WarpfactorError:
        shape = None
    return UNKNOWN_VOXELS if shape is None else math.prod(shape)

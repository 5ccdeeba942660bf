"""Files: images, transforms and points. File formats and their conventions exist only here."""

from warpfactor.io.atomic import atomic_path, check_free
from warpfactor.io.folder import atomic_folder, check_folder
from warpfactor.io.images import (
    Series,
    from_any,
    is_picture,
    read_image,
    read_labels,
    read_mask,
    read_series,
    write_image,
    write_labels,
    write_series,
)
from warpfactor.io.nifti import GeometryWarning
from warpfactor.io.points import Landmarks, PointTable, make_table, read_landmarks, read_points, write_points
from warpfactor.io.probe import count_volumes
from warpfactor.io.together import run_together
from warpfactor.io.transforms import read_ants, read_transform, write_ants, write_transform

__all__ = [
    "GeometryWarning",
    "Landmarks",
    "PointTable",
    "Series",
    "atomic_folder",
    "atomic_path",
    "check_folder",
    "check_free",
    "count_volumes",
    "from_any",
    "is_picture",
    "make_table",
    "read_ants",
    "read_image",
    "read_labels",
    "read_landmarks",
    "read_mask",
    "read_points",
    "read_series",
    "read_transform",
    "run_together",
    "write_ants",
    "write_image",
    "write_labels",
    "write_points",
    "write_series",
    "write_transform",
]

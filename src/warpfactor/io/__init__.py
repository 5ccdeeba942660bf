"""Reading and writing of images, transforms and points; file formats and their conventions are known only here."""

from warpfactor.io.atomic import atomic_folder, atomic_path, check_folder, check_free, reserved_folder
from warpfactor.io.images import (
    Series,
    count_volumes,
    from_any,
    read_image,
    read_labels,
    read_mask,
    read_series,
    write_image,
    write_labels,
    write_series,
)
from warpfactor.io.nifti import GeometryWarning
from warpfactor.io.parallel import run_together
from warpfactor.io.points import (
    Landmarks,
    PointTable,
    is_keypoint_file,
    make_table,
    read_keypoints,
    read_landmarks,
    read_points,
    write_points,
)
from warpfactor.io.simpleitk import is_picture
from warpfactor.io.transforms import (
    read_ants,
    read_transform,
    read_velocity,
    write_ants,
    write_transform,
    write_velocity,
)

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
    "is_keypoint_file",
    "is_picture",
    "make_table",
    "read_ants",
    "read_image",
    "read_keypoints",
    "read_labels",
    "read_landmarks",
    "read_mask",
    "read_points",
    "read_series",
    "read_transform",
    "read_velocity",
    "reserved_folder",
    "run_together",
    "write_ants",
    "write_image",
    "write_labels",
    "write_points",
    "write_series",
    "write_transform",
    "write_velocity",
]

"""Transform files of ITK and ANTs: .mat, .tfm and .txt (affine), .h5 (any transform), displacement images (warps).

They hold LPS millimetres and map points of the fixed space to the moving space, as the objects of this package do, so
that nothing is inverted here. A list of files is in the order of `antsApplyTransforms -t`, which is the order in which
points pass through the transforms.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import FileError, InputError
from warpfactor.geometry import itk
from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.itk import sitk
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.geometry.velocity import Velocity
from warpfactor.io.atomic import atomic_path, check_free
from warpfactor.io.formats import field_suffixes, find_format
from warpfactor.io.headers.transforms import check_transform_file
from warpfactor.io.headers.trial import try_transform
from warpfactor.io.simpleitk import cannot_write, reason_of
from warpfactor.io.voxels import Array, VoxelSource

AFFINE_SUFFIXES = (".mat", ".tfm", ".txt")
COMPOSITE_SUFFIXES = (".h5", ".hdf5")

ANTS_AFFINE, ANTS_WARP, ANTS_INVERSE_WARP = "0GenericAffine.mat", "1Warp.nii.gz", "1InverseWarp.nii.gz"
VELOCITY = "velocity.nii.gz"

Spec = str | Path


def read_transform(
    files: Spec | Sequence[Spec], *, source: str = "fixed", target: str = "moving", single: bool = False
) -> Transform:
    """Read a transform from one file, or from a list in the order of `antsApplyTransforms -t`.

    Args:
        files: paths; "[path,1]" stands for the inverse. Composite files are split into their members.
        source, target: names of the spaces that the transform maps from and to.
        single: keep displacement fields in single precision, as files hold them, in half the memory.
    """
    specs = [files] if isinstance(files, (str, Path)) else list(files)
    if not specs:
        raise InputError("No transform file was given.")
    chain = Chain(tuple(_read_one(spec, single) for spec in specs), source, target)
    if len(chain.parts) > 1:
        return chain
    only = chain.parts[0]
    if isinstance(only, Affine):
        return Affine(only.matrix, source, target, only.ndim)
    return Warp(only.displacement, only.grid, source, target)


def read_ants(prefix: str | Path) -> Transform:
    """Read the transform of `<prefix>1Warp.nii.gz` and `<prefix>0GenericAffine.mat`, or of the one that exists."""
    found = [path for path in (Path(f"{prefix}{name}") for name in (ANTS_WARP, ANTS_AFFINE)) if path.exists()]
    if not found:
        raise FileError(f"{prefix}: there is neither {prefix}{ANTS_WARP} nor {prefix}{ANTS_AFFINE}; check the prefix.")
    return read_transform(found)


def write_transform(transform: Transform, path: str | Path, *, force: bool = False) -> None:
    """Write a transform; the suffix selects the format.

    .mat, .tfm and .txt hold an affine, .h5 any transform as an ITK composite. .nii.gz, .nrrd and .mha hold a
    displacement field in LPS mm (float32); a chain is composed into one field on the grid of its first warp, affines
    included.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith(AFFINE_SUFFIXES):
        _write_affine(_only_affine(transform, path), path, force=force)
    elif name.endswith(COMPOSITE_SUFFIXES):
        _write_composite(transform, path, force=force)
    elif is_field_file(path):
        warp = _only_warp(transform, path)
        find_format(path).write(_field_source(warp), path, force=force)
    else:
        known = ", ".join((*AFFINE_SUFFIXES, *COMPOSITE_SUFFIXES, *field_suffixes()))
        raise FileError(f"{path}: no transform format has this suffix; use one of {known}.")


def write_velocity(velocity: Velocity, path: str | Path, *, force: bool = False) -> None:
    """Write a velocity as an image of vectors in LPS mm per unit of time, which ITK reads as a displacement field."""
    if not is_field_file(Path(path)):
        raise FileError(f"{path}: a velocity field is a vector image; use one of {', '.join(field_suffixes())}.")
    write_transform(velocity.as_field(), path, force=force)


def read_velocity(path: str | Path, *, space: str = "fixed") -> Velocity:
    """Read the velocity in a file that `write_velocity` or a result folder wrote."""
    field = read_transform(path, source=space, target=space)
    if not isinstance(field, Warp):
        raise FileError(f"{path}: a velocity field is a vector image, and this file is not.")
    return Velocity.from_field(field)


def write_ants(
    transform: Transform, prefix: str | Path, *, inverse_warp: Warp | None = None, force: bool = False
) -> list[Path]:
    """Write y = A(x + u(x)) under the names that ANTs uses, and return the paths.

    Args:
        transform: a warp, an affine, or a warp followed by an affine.
        prefix: a folder ending in "/", or a folder and the start of a name.
        inverse_warp: written as `1InverseWarp.nii.gz` beside the warp.
        force: replace existing files.
    """
    warps = [part for part in transform.parts if isinstance(part, Warp)]
    affines = [part for part in transform.parts if isinstance(part, Affine)]
    if len(warps) > 1 or (warps and transform.parts[0] is not warps[0]):
        raise InputError("The files of ANTs hold one warp followed by affines; write this chain as .h5 instead.")
    jobs: list[tuple[str, Transform]] = []
    if affines or not warps:
        jobs.append((ANTS_AFFINE, _merged(affines, transform.ndim)))
    jobs += [(ANTS_WARP, warp) for warp in warps]
    if inverse_warp is not None:
        jobs.append((ANTS_INVERSE_WARP, inverse_warp))
    paths = [Path(f"{prefix}{name}") for name, _ in jobs]
    for path in paths:
        check_free(path, force=force)
    for path, (_, part) in zip(paths, jobs, strict=True):
        write_transform(part, path, force=force)
    return paths


def is_field_file(path: Path) -> bool:
    """Return whether a transform file of that name is an image that holds a displacement field."""
    return path.name.lower().endswith(field_suffixes())


def _read_one(spec: Spec, single: bool) -> Transform:
    text = str(spec).strip()
    if not (text.startswith("[") and text.endswith("]")):
        return _read_file(Path(spec), single)
    name, _, flag = text[1:-1].rpartition(",")
    if flag.strip() not in ("0", "1") or not name:
        raise FileError(f"{text}: write [file,1] for the inverse of a file and [file,0] for the file itself.")
    transform = _read_file(Path(name.strip()), single)
    return transform.inverse() if flag.strip() == "1" else transform


def _read_file(path: Path, single: bool = False) -> Transform:
    if path.is_dir() and not is_field_file(path):
        raise FileError(f"{path}: is a folder; give the files in it, for instance 1Warp.nii.gz and 0GenericAffine.mat.")
    if not path.exists():
        raise FileError(f"{path}: there is no such file.")
    try:
        if is_field_file(path):
            return _read_warp(path, single)
        _check_header(path)
        with itk.files:
            transform = sitk.ReadTransform(str(path))
        return _from_itk(transform)
    except (RuntimeError, ValueError, OverflowError) as error:
        raise FileError(f"{path}: cannot be read as a transform ({reason_of(error)}).") from error
    except InputError as error:
        raise FileError(f"{path}: {error}") from error


def _check_header(path: Path) -> None:
    """Raise a FileError if ITK must not read this transform file."""
    if not path.name.lower().endswith(AFFINE_SUFFIXES):
        try_transform(path)
        return
    try:
        check_transform_file(path)
    except InputError as error:
        if _is_plain_matrix(path):
            raise FileError(
                f"{path}: is a bare matrix, as FSL and Greedy write, whose conventions warpfactor does not read; "
                "convert it to an ITK transform."
            ) from error
        raise FileError(f"{path}: cannot be read as a transform ({error}).") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error}); check its permissions.") from error


def _read_warp(path: Path, single: bool) -> Warp:
    found = find_format(path).read(path, field=True)
    if len(found.data) != 1:
        raise InputError(f"A displacement field is one volume, this file has {len(found.data)}; extract one.")
    vectors = found.data[0]
    reused = single and vectors.dtype == np.float32 and vectors.flags.writeable and len(vectors) == 3
    room = torch.from_numpy(vectors) if reused else None
    return Warp(_to_displacement(vectors, found.grid, room), found.grid)


def _to_displacement(vectors: Array, grid: Grid, out: Tensor | None = None) -> Tensor:
    """(C, D, H, W) vectors in LPS mm -> (3, D, H, W) displacement in voxels: float64, or written into `out`."""
    if len(vectors) != grid.ndim:
        raise InputError(
            f"A {grid.ndim}-D displacement field needs {grid.ndim} components, this has {len(vectors)}; give a warp."
        )
    field = torch.empty((3, *grid.shape), dtype=torch.float64) if out is None else out
    for planes in slabs(grid.shape):
        part = torch.zeros((3, *field[0, planes].shape), dtype=torch.float64)
        part[: grid.ndim] = itk.to_tensor(vectors[:, planes])
        field[:, planes] = grid.mm_to_voxels(part)
    return field


def _field_source(warp: Warp) -> VoxelSource:
    """The displacement of a warp in LPS mm; the components of a slab are computed when they are written."""
    grid = warp.grid

    def component(_: int, axis: int) -> Iterator[Array]:
        for planes in slabs(grid.shape):
            yield grid.voxels_to_mm(warp.displacement[:, planes].detach(), axis).cpu().numpy()

    return VoxelSource(component, np.dtype(np.float32), grid, channels=grid.ndim)


def _is_plain_matrix(path: Path) -> bool:
    """Whether a text file holds the numbers of a matrix and nothing else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file without numbers
            return np.loadtxt(path).shape in ((3, 3), (4, 4))
    except (ValueError, OSError):
        return False


def _from_itk(transform: Any) -> Transform:
    """Convert a SimpleITK transform. The composites of ITK apply their last member first."""
    specific = transform.Downcast()
    if isinstance(specific, sitk.CompositeTransform) and not _is_opaque(specific):
        members = [_from_itk(specific.GetNthTransform(n)) for n in range(specific.GetNumberOfTransforms())]
        return Chain(tuple(reversed(members)))
    if isinstance(specific, sitk.DisplacementFieldTransform):
        field = specific.GetDisplacementField()
        grid = itk.grid_of(field)
        vectors = sitk.GetArrayViewFromImage(field).reshape(*grid.shape, -1)
        return Warp(_to_displacement(np.moveaxis(vectors, -1, 0), grid), grid)
    if not specific.IsLinear():
        raise InputError(
            f"A transform of kind {specific.GetName()} is not supported; convert it to a displacement field."
        )
    return Affine(itk.matrix_from_sitk(specific), dimension=specific.GetDimension())


def _is_opaque(composite: Any) -> bool:
    """Whether this is a linear transform that SimpleITK has no class for; it is then its own only member."""
    alone = composite.GetNumberOfTransforms() == 1 and composite.IsLinear()
    return alone and isinstance(composite.GetNthTransform(0).Downcast(), sitk.CompositeTransform)


def _composite(transform: Transform) -> Any:
    composite = sitk.CompositeTransform(transform.ndim)
    for part in reversed(transform.parts):
        if isinstance(part, Affine):
            composite.AddTransform(itk.affine_to_sitk(part.matrix, transform.ndim))
        else:
            composite.AddTransform(itk.warp_to_sitk(part.displacement, part.grid))
    return composite


def _write_affine(affine: Affine, path: Path, *, force: bool) -> None:
    transform = itk.affine_to_sitk(affine.matrix, affine.ndim)
    with atomic_path(path, force=force) as temporary:
        _write_itk(transform, temporary, path)
        with itk.files:
            written = sitk.ReadTransform(str(temporary))
        if written.GetParameters() != transform.GetParameters():
            raise FileError(f"{path}: could not be written completely; is the disk full?")


def _write_composite(transform: Transform, path: Path, *, force: bool) -> None:
    voxels = sum(part.grid.voxel_count for part in transform.parts if isinstance(part, Warp))
    # HDF5 crashes the process when the disk is full, so the free space is checked beforehand.
    with atomic_path(path, force=force, need_bytes=8 * transform.ndim * voxels + (1 << 16)) as temporary:
        _write_itk(_composite(transform), temporary, path)
        if temporary.stat().st_size < 8 * transform.ndim * voxels:
            raise FileError(f"{path}: could not be written completely; is the disk full?")


def _write_itk(transform: Any, temporary: Path, path: Path) -> None:
    try:
        with itk.files:
            sitk.WriteTransform(transform, str(temporary))
    except RuntimeError as error:
        raise cannot_write(path, temporary, error) from error


def _only_affine(transform: Transform, path: Path) -> Affine:
    affines = [part for part in transform.parts if isinstance(part, Affine)]
    if len(affines) != len(transform.parts):
        raise FileError(f"{path}: this format holds affines only; write a warp as .nii.gz or .h5, and a chain as .h5.")
    return _merged(affines, transform.ndim)


def _merged(affines: Sequence[Affine], ndim: int) -> Affine:
    matrix = np.eye(4)
    for affine in affines:
        matrix = affine.matrix @ matrix
    if ndim == 2 and not np.array_equal(matrix[2], (0, 0, 1, 0)):
        raise InputError("A 2-D affine must not change z; give a 3-D one for 3-D files.")
    return Affine(matrix, dimension=ndim)


def _only_warp(transform: Transform, path: Path) -> Warp:
    if isinstance(transform, Warp):
        return transform
    warps = [part for part in transform.parts if isinstance(part, Warp)]
    if not warps:
        raise FileError(f"{path}: an affine has no grid of its own; write it as .mat or .tfm, or make it a warp first.")
    return transform.to_warp(warps[0].grid)

"""What commands do with --memory: read and write in parts, and refuse beforehand what cannot be held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfactor.errors import InputError
from warpfactor.memory import limit_bytes, peak_bytes, shown_bytes

if TYPE_CHECKING:
    from warpfactor.cli.given import GivenTransform
    from warpfactor.cohort import EngineSettings
    from warpfactor.geometry.transform import Transform
    from warpfactor.registration.orders import BlockJob, Order


def check_reading(
    memory: str | None, result: Path | None, transforms: list[str] | None, *, inverse: bool = False
) -> None:
    """OutOfMemoryError if the transform alone, or with the inverse of a result, cannot be read within the limit.

    With a limit, kernels are compiled first, since that takes memory of its own.
    """
    from warpfactor.io.transforms import ANTS_INVERSE_WARP, ANTS_WARP
    from warpfactor.registration.ahead import compile_ahead
    from warpfactor.registration.fields import check_limit, reading_bytes

    if memory is not None:
        compile_ahead()
        files = [Path(text.strip("[]").split(",")[0]) for text in transforms or ()]
        names = (ANTS_WARP, ANTS_INVERSE_WARP) if inverse else (ANTS_WARP,)
        files += [] if result is None else [result / name for name in names]
        check_limit(limit_bytes(memory), reading_bytes(files), "reading the transform")


def stream(
    order: Order, transform: Transform, output: Path, memory: str | None, engine: EngineSettings | None, *, force: bool
) -> str:
    """Resample in parts, in this process or on a Dask cluster; returns what was written.

    Args:
        order: what to resample.
        transform: of the order, as it was read.
        output: file to write.
        memory: the limit.
        engine: the cluster; None works in this process.
        force: replace an existing file.
    """
    from warpfactor.io import omezarr
    from warpfactor.registration.orders import write_by_jobs
    from warpfactor.registration.streaming import write_resampled

    if engine is not None and not omezarr.handles(output):
        raise InputError(f"{output}: several processes can only write OME-Zarr; give a name that ends in .ome.zarr.")
    work = order.open(transform)
    voxels = _block_voxels(None if memory is None else limit_bytes(memory), order.source)
    if engine is None:
        write_resampled(work, output, force=force, voxels=voxels)
    else:
        write_by_jobs(order, work, output, lambda jobs: _on_engine(engine, jobs), force=force)
    return f"Image{spent(memory)}"


def spent(memory: str | None) -> str:
    """What is said of the limit at the end: the peak that was measured, and whether that is within it."""
    peak = peak_bytes()
    if memory is None or peak is None:
        return ""
    broken = "" if peak <= limit_bytes(memory) else ": the limit was exceeded"
    return f" (peak memory {shown_bytes(peak)}, limit {memory}{broken})"


def compose_in_slabs(given: GivenTransform, output: Path, memory: str, reference: Path | None, *, force: bool) -> bool:
    """Write a transform as one field, slab by slab; False if a file of another kind is wanted and can be held."""
    from warpfactor.io.formats import field_suffixes
    from warpfactor.kernels import select
    from warpfactor.registration.fields import Composed, slab_planes, write_field

    if not output.name.lower().endswith(field_suffixes()):
        check_whole(given, memory, "writing the transform as a whole (a field as .nii.gz takes less)")
        return False
    grid = given.lazy_grid("fixed", reference)
    planes = slab_planes(limit_bytes(memory), grid, f"composing a field of {grid.summary}")
    write_field(Composed(given.transform, grid, select()), output, planes, force=force)
    return True


def invert_in_slabs(given: GivenTransform, output: Path, memory: str, reference: Path | None, *, force: bool) -> bool:
    """Write the inverse of a single warp slab by slab; False if a file of another kind is wanted.

    The inverse of a result folder is written already, and only composed.
    """
    import warpfactor as wf
    from warpfactor.io.formats import field_suffixes
    from warpfactor.kernels import select
    from warpfactor.registration.fields import (
        Composed,
        Inverted,
        SlabField,
        slab_planes,
        write_field,
    )

    only, fields = given.transform, output.name.lower().endswith(field_suffixes())
    field: SlabField | None = None
    if fields and given.saved is not None:
        field = Composed(given.towards("moving"), given.lazy_grid("moving", reference), select())
    elif fields and isinstance(only, wf.Warp) and reference is None:
        field = Inverted(only, select())
    if field is None:
        check_whole(given, memory, "inverting the transform as a whole")
        return False
    planes = slab_planes(limit_bytes(memory), field.grid, f"inverting a field of {field.grid.summary}", field.reach)
    write_field(field, output, planes, force=force)
    return True


def jacobian_in_slabs(
    given: GivenTransform, output: Path, memory: str, reference: Path | None, *, total: bool, log: bool, force: bool
) -> tuple[int, float]:
    """Write the Jacobian determinant slab by slab; the number of folded voxels, and the least determinant."""
    import warpfactor as wf
    from warpfactor.kernels import select
    from warpfactor.registration.fields import Composed, slab_planes, write_jacobian

    warps = [part for part in given.transform.parts if isinstance(part, wf.Warp)]
    if not warps and not total:
        raise InputError("There is no warp in this transform; an affine has one determinant everywhere (--total).")
    whole = total or len(warps) > 1
    grid = given.lazy_grid("fixed", reference) if whole else warps[0].grid
    planes = slab_planes(limit_bytes(memory), grid, f"a Jacobian of {grid.summary}", reach=1)
    field = Composed(given.transform if whole else warps[0], grid, select())
    return write_jacobian(field, output, planes, select(), log=log, force=force)


def check_whole(given: GivenTransform, memory: str, what: str) -> None:
    """OutOfMemoryError if the fields of a transform cannot be worked on, or written, as a whole."""
    import warpfactor as wf
    from warpfactor.registration.fields import WHOLE_BYTES, check_limit

    voxels = sum(part.grid.voxel_count for part in given.transform.parts if isinstance(part, wf.Warp))
    check_limit(limit_bytes(memory), WHOLE_BYTES * voxels, what)


def _block_voxels(limit: int | None, source: Path) -> int:
    """Voxels of a block that can be computed at once beside what the process holds already."""
    from warpfactor.registration.fields import check_limit
    from warpfactor.registration.plan import own_bytes
    from warpfactor.registration.streaming import BLOCK_VOXELS, FEWEST_VOXELS, VOXEL_BYTES

    if limit is None:
        return BLOCK_VOXELS
    check_limit(limit, VOXEL_BYTES * FEWEST_VOXELS, f"resampling {source}")
    return min(BLOCK_VOXELS, int((limit - own_bytes()) / VOXEL_BYTES))


def _on_engine(settings: EngineSettings, jobs: list[BlockJob]) -> Iterator[Any]:
    """What became of every block: nothing, or what went wrong."""
    from warpfactor.cohort.engine.engine import Crash, engine_problems, open_engine
    from warpfactor.registration.orders import run_block
    from warpfactor.registration.plan import LIBRARIES

    for problem in engine_problems(settings):
        raise InputError(problem)
    with open_engine(settings, need_bytes=int(2 * LIBRARIES), jobs=len(jobs)) as engine:
        for _, found in engine.finished(run_block, jobs):
            yield found.reason if isinstance(found, Crash) else found

"""Large images resampled by several processes: what to do in terms of files, and its blocks as jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from warpfactor.errors import FileError, WarpfactorError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.transform import Transform
from warpfactor.io import omezarr, read_transform
from warpfactor.io.lazy import open_lazily
from warpfactor.io.voxels import Box
from warpfactor.kernels import select
from warpfactor.registration.folder import read_result
from warpfactor.registration.streaming import BLOCK_VOXELS, Resampling, lazy_background, zarr_blocks


@dataclass(frozen=True)
class Order:
    """What to resample, in terms of files, so that other processes can do parts of it.

    Attributes:
        source: image in the space of origin.
        result: a result folder, or None.
        transforms: transform files, if there is no result folder.
        to: the space of the output, "fixed" or "moving".
        grid: of the output.
        mode, outside: see Resampling; the image's own background if `outside` is None.
        spacing_mm, channels: of the image, instead of what its file says.
    """

    source: Path
    result: Path | None
    transforms: tuple[str, ...]
    to: str
    grid: Grid
    mode: str
    outside: float | None = None
    spacing_mm: tuple[float, ...] | None = None
    channels: tuple[int, ...] | None = None

    def open(self, transform: Transform | None = None) -> Resampling:
        """What there is to do, with the files opened; the transform is read unless it is given."""
        image = open_lazily(self.source, spacing_mm=self.spacing_mm)
        image = image if self.channels is None else image.with_channels(self.channels)
        beyond = lazy_background(image, self.outside, self.mode)
        return Resampling(transform or self._transform(), image, self.grid, self.mode, beyond, select())

    def _transform(self) -> Transform:
        if self.result is not None:
            saved = read_result(self.result, single=True)
            return saved.transform if self.to == "fixed" else saved.inverse
        found = read_transform(list(self.transforms), single=True)
        return found if self.to == "fixed" else found.inverse()


@dataclass(frozen=True)
class BlockJob:
    """A block of an OME-Zarr that another process computes and writes; no other one writes its chunks."""

    order: Order
    folder: Path
    channel: int
    box: Box

    @property
    def name(self) -> str:
        """For the cluster's own pages."""
        return f"block-{self.channel}-" + "-".join(str(part.start) for part in self.box)


def run_block(job: BlockJob) -> str:
    """Compute and write a block; what went wrong, as a sentence, or nothing."""
    try:
        omezarr.put(job.folder, job.channel, job.box, _opened(job.order).block(job.channel, job.box))
    except (WarpfactorError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


@functools.lru_cache(maxsize=1)
def _opened(order: Order) -> Resampling:
    """A process opens the files of an order once."""
    return order.open()


def write_by_jobs(
    order: Order, work: Resampling, path: Path, run: Callable[[list[BlockJob]], Iterable[object]], *, force: bool
) -> None:
    """Write an OME-Zarr by jobs, one for each block.

    Args:
        order: what to do.
        work: the same, opened.
        path: of the OME-Zarr.
        run: runs the jobs, and yields what `run_block` returned for each.
        force: replace an existing one.
    """
    with omezarr.writing(path, work.grid, work.dtype, work.image.channels, force=force) as folder:
        blocks = zarr_blocks(work.grid, work.image.channels, BLOCK_VOXELS)
        for problem in run([BlockJob(order, folder, channel, box) for channel, box in blocks]):
            if problem:
                raise FileError(f"{path}: a block of it could not be written: {problem}")

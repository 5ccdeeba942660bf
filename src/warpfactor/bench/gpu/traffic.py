"""What an iteration moves through the memory of a GPU, from what the kernels declare, and the time that predicts.

The launches of an iteration are listed here; a test compares them with those that really happen. Predictions assume
that memory is the bottleneck and that a kernel reaches 80 % of its bandwidth; nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpfactor.kernels.taps import gaussian_kernel
from warpfactor.kernels.triton.descent import adam_step, step_by_voxel
from warpfactor.kernels.triton.field import compose_fields, determinant
from warpfactor.kernels.triton.fused import filter_and_step, in_one
from warpfactor.kernels.triton.kernel import Kernel
from warpfactor.kernels.triton.lncc import lncc_chain
from warpfactor.kernels.triton.lncc_kernels import lncc_force, lncc_maps, lncc_warp
from warpfactor.kernels.triton.mi import mi_force, mi_votes
from warpfactor.kernels.triton.mind import channel_difference
from warpfactor.kernels.triton.mse import squared_difference
from warpfactor.kernels.triton.passes import NARROW, axis_reach, chain_of, filter_axis, filter_window
from warpfactor.kernels.triton.slabs import PassChain, Reach
from warpfactor.kernels.triton.smooth import together
from warpfactor.kernels.triton.tile import tile_chain, tile_step

REACHED = 0.8  # share of the bandwidth
WINDOW = 5  # of LNCC
TAIL_SIGMA, TAIL = 1.4, (0.3, 4.0)  # the default's Gaussian on the gradient: a radius of 17 voxels
TILE = 3


@dataclass(frozen=True)
class Device:
    """A GPU's bandwidth in bytes per second, and its second-level cache in bytes, as its maker states them."""

    name: str
    bandwidth: float
    cache: float


DEVICES = (
    Device("RTX A6000", 768e9, 6e6),
    Device("A100 80 GB", 2039e9, 40e6),
    Device("H100 SXM", 3350e9, 50e6),
)


@dataclass(frozen=True)
class Launch:
    """A kernel's part in an iteration.

    Attributes:
        components: of a field that go through it, each with the traffic that the kernel declares.
        slabs: which of its declared reads and writes lie in rings here.
        without: which of them are not there.
    """

    kernel: Kernel
    components: int = 1
    slabs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def bytes_per_voxel(self, *, cached: bool) -> float:
        """Traffic; with `cached`, what lies in rings never leaves the cache."""
        moved = (*self.kernel.reads.items(), *self.kernel.writes.items())
        free = {name for name, _ in moved if name.startswith("slab") or name in self.slabs} if cached else set()
        return self.components * sum(size for name, size in moved if name not in {*free, *self.without})


FIRST, NEXT, LAST = (
    Launch(filter_axis, 3, held) for held in (("target",), ("source", "target"), ("source",))
)  # filters along an axis, by which of the two fields are rings


METRICS = {
    "lncc": (Launch(lncc_warp), Launch(lncc_maps), Launch(lncc_force)),
    "mse": (Launch(squared_difference),),
    "mi": (Launch(mi_votes), Launch(mi_force)),
    "mind": (Launch(channel_difference),),
}
ALL_AXES = (FIRST, NEXT, LAST)
STEPS = {  # with the Gaussian on the gradient before them
    "root, pointwise": (FIRST, NEXT, Launch(filter_and_step, without=("moments",))),
    "tile": (*ALL_AXES, Launch(filter_axis, 3, ("target",)), Launch(tile_step)),
    "adam": (FIRST, NEXT, Launch(filter_and_step)),
}
APART = {  # where one component is smoothed after the other
    **STEPS,
    "root, pointwise": (*ALL_AXES, Launch(step_by_voxel)),
    "adam": (*ALL_AXES, Launch(adam_step)),
}
ADVANCE = (Launch(compose_fields, 1, ("composed",), ("log volume",)), Launch(filter_window, 3, ("source",)))
VOLUME = (  # what the volume term takes besides
    Launch(determinant, 1, ("determinant",)),
    Launch(filter_window, 1, ("source",)),
    Launch(compose_fields, 1, (), ("warp", "step", "composed")),
)


def iteration(metric: str, step: str, *, one_by_one: bool = False) -> tuple[Launch, ...]:
    """Metric with gradient, smoothing of the gradient and step, composition and smoothing of the warp.

    Args:
        one_by_one: components of the gradient are smoothed one after the other.
    """
    return (*METRICS[metric], *(APART if one_by_one else STEPS)[step], *ADVANCE)


def bytes_per_voxel(launches: Sequence[Launch], *, cached: bool) -> float:
    """What a sequence of launches moves per voxel."""
    return sum(each.bytes_per_voxel(cached=cached) for each in launches)


def chains(shape: tuple[int, int, int], metric: str, step: str) -> tuple[PassChain, ...]:
    """The chains of passes of an iteration with the default's smoothing, one after the other."""
    found = [_smoothing(shape, step), chain_of((3, *shape), [Reach(), axis_reach(0, NARROW)])]
    if metric == "lncc":
        found.append(lncc_chain(shape, WINDOW // 2, 4, exact=True))
    if step == "tile":
        found.append(tile_chain(shape, (TILE,) * 3))
    return tuple(found)


def _smoothing(shape: tuple[int, int, int], step: str) -> PassChain:
    """The passes of the default's Gaussian on the gradient."""
    reaches = _reaches()
    whole = together((3, *shape), reaches) if step == "tile" else in_one((3, *shape), reaches)
    return chain_of((3 if whole else 1, *shape), reaches)


def _reaches() -> list[Reach]:
    radius = len(gaussian_kernel(TAIL_SIGMA, 3.0, TAIL)) // 2
    return [axis_reach(axis, radius) for axis in (1, 0, 2)]


def slab_bytes(shape: tuple[int, int, int], metric: str, step: str) -> int:
    """The largest buffers of an iteration besides its fields."""
    return max(chain.nbytes for chain in chains(shape, metric, step))


def predicted_ms(
    device: Device, shape: tuple[int, int, int], metric: str = "lncc", step: str = "root, pointwise"
) -> float:
    """Milliseconds of an iteration, if memory is the bottleneck; rings are cached if the cache is large enough."""
    cached = slab_bytes(shape, metric, step) <= device.cache
    voxels = shape[0] * shape[1] * shape[2]
    launches = iteration(metric, step, one_by_one=not in_one((3, *shape), _reaches()))
    return 1e3 * voxels * bytes_per_voxel(launches, cached=cached) / (REACHED * device.bandwidth)

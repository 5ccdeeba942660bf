"""What ranks send each other in an iteration, counted from the planes that kernels read, and how long that takes.

python -m warpfactor.bench.halos                  # 2048^3 voxels on 8 machines, the recipe default
python -m warpfactor.bench.halos 1024 4 lung

A slab in the middle of the image is counted, which has two neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch

import warpfactor as wf
from warpfactor.kernels.numba.planes import lncc_reach, smooth_reach
from warpfactor.ranks.exchange import cuts
from warpfactor.stages.level import VOLUME_SIGMA
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC

VECTOR, NUMBER = 12, 4  # bytes of a voxel
INTERPOLATED = 2  # planes beyond the longest step that composition reads
VOXEL_NS = 150.0  # for a voxel and iteration of the default by one thread; docs/benchmarks/large.md
IMAGES, WARP = 8, 12  # bytes a voxel of both images, lent once, and of the warp, which comes back
NETWORKS_GBIT = 10, 100
CORES = 2, 32


class Halo(NamedTuple):
    """What a rank sends to each neighbour in an iteration: so many planes, with so many bytes of each voxel."""

    what: str
    planes: int
    bytes_each: int


def halos(
    stage: Deformable, depth: int, ranks: int, *, wider: float = 1.0, step_vox: float | None = None
) -> list[Halo]:
    """What an inner rank sends to each neighbour in an iteration of the finest level.

    Args:
        stage: with the metric LNCC.
        depth: planes of the image.
        ranks: how many share it.
        wider: how much wider than `sigma_grad` and `sigma_warp` the images ask for; at most `stage.reach`.
        step_vox: length of the longest step; that of the stage by default.
    """
    assert isinstance(stage.metric, LNCC)
    first, last = cuts(depth, ranks)[ranks // 2]
    window = stage.metric.size if isinstance(stage.metric.size, int) else stage.metric.size[-1]
    before, after = lncc_reach((first, last), depth, window // 2)
    widened = stage.smoothness * wider
    longest = stage.step if step_vox is None else step_vox
    gradient = _reach(stage, depth, widened * stage.sigma_grad, stage.tail)
    found = [
        Halo("metric: warp", max(first - before, after - last), VECTOR),
        Halo("smoothing of the gradient", gradient, VECTOR),
        Halo("composition: warp", int(longest) + INTERPOLATED, VECTOR),
        Halo("smoothing of the warp", _reach(stage, depth, widened * stage.sigma_warp), VECTOR),
    ]
    if stage.volume > 0:
        found += [
            Halo("volume term: warp", 1, VECTOR),
            Halo("smoothing of the log Jacobian", _reach(stage, depth, VOLUME_SIGMA), NUMBER),
            Halo("slopes of the log Jacobian", 1, NUMBER),
        ]
    return found


def _reach(stage: Deformable, depth: int, sigma: float, tail: tuple[float, float] = (0.0, 1.0)) -> int:
    field = torch.empty((1, depth, 1, 1), device="meta")
    return smooth_reach(field, (sigma, 0.0, 0.0), stage.boundary, stage.truncate, tail)


def lines(size: int, ranks: int, recipe: str) -> Iterator[str]:
    """A report for people."""
    stage = wf.recipe(recipe).deformable
    assert stage is not None
    yield f"{size}^3 voxels, recipe {recipe}, {ranks} ranks: what an inner one sends to each neighbour"
    ends = [halos(stage, size, ranks, wider=wider) for wider in (1.0, stage.reach)]
    for narrow, wide in zip(*ends, strict=True):
        span = str(narrow.planes) if narrow == wide else f"{narrow.planes} to {wide.planes}"
        yield f"  {narrow.what:<30} {span:>9} planes of {narrow.bytes_each} bytes a voxel"
    sent = [2 * size**2 * sum(halo.planes * halo.bytes_each for halo in end) for end in ends]
    yield f"Sent to both in an iteration: {sent[0] / 1e9:.2f} to {sent[1] / 1e9:.2f} GB"
    for network in NETWORKS_GBIT:
        low, high = (8 * count / network / 1e9 for count in sent)
        yield f"  {low:.2f} to {high:.2f} s at {network} Gbit/s"
    slab = size**3 / ranks
    seconds = [slab * VOXEL_NS * 1e-9 / cores for cores in CORES]
    times = " and ".join(f"{s:.1f} s on {cores}" for s, cores in zip(seconds, CORES, strict=True))
    yield f"Computed: {slab / 1e9:.2f} billion voxels each, {times} cores if they scale"
    others = size**3 * (ranks - 1) / ranks
    yield f"Once: images lent by rank 0 {IMAGES * others / 1e9:.0f} GB, warp sent back {WARP * others / 1e9:.0f} GB"


def main(arguments: list[str]) -> None:
    """Print what ranks would send: for so many voxels along an axis, so many ranks, and a recipe."""
    size, ranks, recipe = *arguments, *("2048", "8", "default")[len(arguments) :]
    sys.stdout.write("\n".join(lines(int(size), int(ranks), recipe)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

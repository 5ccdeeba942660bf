"""Seconds of one LNCC iteration of a recipe: Numba kernels, reference kernels and a scale-copy in one run.

    python bench/iteration.py [--recipe default] [--shape 160 192 160] [--repeats 5]

Prints nanoseconds per voxel (the best of the repeats) and the ratios. Parts are timed one by one, then added up.
"""

import argparse
import time

import numba
import numpy as np
import torch

import warpfactor as wf
from warpfactor import kernels
from warpfactor.register.deformable import LevelSolver
from warpfactor.register.pair import make_scene


@numba.njit(parallel=True)
def scale_copy(source, target):
    """The yardstick: read three channels, write three channels."""
    for i in numba.prange(source.size):
        target[i] = np.float32(1.001) * source[i]


def best(function, repeats):
    """The shortest of several runs, after one that does not count, in seconds."""
    function()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def parts(ops, scene, settings):
    """Name -> one part of an iteration, as the driver calls it."""
    generator = torch.Generator().manual_seed(0)
    warp = torch.randn((3, *scene.pair.shape), generator=generator)
    ops.smooth_gaussian(warp, (3.0, 3.0, 3.0))
    field = torch.empty_like(warp)
    solver = LevelSolver(scene, torch.eye(4, dtype=torch.float64)[:3].contiguous(), settings, ops, len(settings.levels))
    tail = {"truncate": settings.truncate, "tail": settings.tail}
    weights = solver.units.weights
    return {
        "LNCC and its gradient": lambda: solver.cost.linearize(warp, solver.matrix, field),
        "smooth the gradient": lambda: ops.smooth_gaussian(field, (settings.sigma_grad,) * 3, **tail),
        "step": lambda: ops.descend(field, form=settings.descent.name, damping=1.0, weights=weights),
        "compose": lambda: ops.compose(warp, field, scale=0.1, out=field),
        "smooth the warp": lambda: ops.smooth_gaussian(field, (settings.sigma_warp,) * 3, truncate=settings.truncate),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=(160, 192, 160))
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    shape = tuple(arguments.shape)
    voxels = int(np.prod(shape))
    generator = torch.Generator().manual_seed(1)
    images = [wf.Image.from_array(torch.randn(shape, generator=generator)) for _ in range(2)]
    scene = make_scene(*images)
    settings = wf.recipe(arguments.recipe).deformable
    source = np.ones(3 * voxels, np.float32)
    target = np.empty_like(source)
    copy = best(lambda: scale_copy(source, target), arguments.repeats) / voxels * 1e9
    times = {}
    for backend, repeats in (("cpu", arguments.repeats), ("reference", max(1, arguments.repeats // 3))):
        rows = parts(kernels.select("cpu", backend), scene, settings)
        times[backend] = {name: best(part, repeats) / voxels * 1e9 for name, part in rows.items()}
        times[backend]["iteration"] = sum(times[backend].values())
    print(f"recipe {arguments.recipe}, shape {shape}, {numba.get_num_threads()} threads")
    print(f"3-channel scale-copy {copy:.2f} ns per voxel\n")
    print("| part | cpu, ns per voxel | reference, ns per voxel | faster | cpu / scale-copy |\n|---|---|---|---|---|")
    for name, mine in times["cpu"].items():
        slow = times["reference"][name]
        print(f"| {name} | {mine:.1f} | {slow:.0f} | {slow / mine:.1f}x | {mine / copy:.0f} |")


if __name__ == "__main__":
    main()

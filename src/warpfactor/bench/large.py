"""Volumes beyond memory: a phantom made on disk, registered under a limit, and its true error.

python -m warpfactor.bench.large phantom 512 data        # data/fixed.ome.zarr, data/moving.ome.zarr, data/truth.npy
warpfactor register data/fixed.ome.zarr data/moving.ome.zarr -o out --memory 2GB
python -m warpfactor.bench.large error data out
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import warpfactor as wf
from warpfactor.phantom import phantom_slabs

PLANES = 32
STRIDE = 8  # voxels between those whose true displacement is kept
SCALE = 40_000  # of the 16-bit numbers: the phantom's intensities are about 0 to 1
SIDES = ("fixed", "moving")


def make(size: int, folder: Path) -> None:
    """A phantom of size^3 voxels as OME-Zarr with a stored level of half the resolution, 16 bits; and its truth."""
    import zarr

    folder.mkdir(parents=True, exist_ok=True)
    shape, kept = (size, size, size), []
    arrays = {side: _arrays(zarr, folder / f"{side}.ome.zarr", shape) for side in SIDES}
    for planes, part in phantom_slabs(shape, PLANES):
        for side in SIDES:
            full = (getattr(part, side) * SCALE + 2000).round().clamp(0, 65535)
            arrays[side][0][planes] = full.numpy().astype(np.uint16)
            half = torch.nn.functional.avg_pool3d(full[None, None], 2)[0, 0].round()
            arrays[side][1][planes.start // 2 : planes.stop // 2] = half.numpy().astype(np.uint16)
        whole = np.concatenate([part.displacement.numpy(), part.mask[None].numpy()])
        kept.append(whole[:, ::STRIDE, ::STRIDE, ::STRIDE])
    np.save(folder / "truth.npy", np.concatenate(kept, axis=1))


def _arrays(zarr: Any, path: Path, shape: tuple[int, int, int]) -> tuple[Any, Any]:
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    datasets, found = [], []
    for level in range(2):
        own = tuple(n >> level for n in shape)
        found.append(group.create_array(str(level), shape=own, chunks=(PLANES, 128, 128), dtype="uint16"))
        scale, place = float(1 << level), ((1 << level) - 1) / 2
        steps = [{"type": "scale", "scale": [scale] * 3}, {"type": "translation", "translation": [place] * 3}]
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    axes = [{"name": axis, "type": "space", "unit": "millimeter"} for axis in "zyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets, "name": path.name}]}
    return found[0], found[1]


def error(folder: Path, result: Path) -> dict[str, Any]:
    """True error in voxels of a result at every STRIDE-th voxel of the object, and what it took."""
    truth = torch.from_numpy(np.load(folder / "truth.npy"))
    saved = wf.read_result(result)
    index = np.stack(np.meshgrid(*(STRIDE * np.arange(n) for n in truth.shape[1:]), indexing="ij"), -1).reshape(-1, 3)
    inside = truth[3].reshape(-1).numpy() > 0.5
    points = saved.fixed_grid.index_to_world(index[inside])
    moved = saved.moving_grid.world_to_index(saved.transform.map_points(points))
    wrong = np.linalg.norm(moved - index[inside] - truth[:3].reshape(3, -1).T.numpy()[inside], axis=1)
    before = truth[:3].norm(dim=0).reshape(-1).numpy()[inside]
    entries = saved.entries
    return {
        "error_vox": {"mean": float(wrong.mean()), "p95": float(np.quantile(wrong, 0.95)), "max": float(wrong.max())},
        "displacement_vox": float(before.mean()),
        "memory": entries.get("memory"),
        "seconds": entries["seconds"],
    }


def main(arguments: list[str]) -> None:
    """Make a phantom, or print the error of a result."""
    if arguments[:1] == ["phantom"]:
        make(int(arguments[1]), Path(arguments[2]))
    elif arguments[:1] == ["error"]:
        sys.stdout.write(json.dumps(error(Path(arguments[1]), Path(arguments[2])), indent=2) + "\n")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

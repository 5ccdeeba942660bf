"""Volumes beyond memory: a phantom or an enlarged image on disk, registered under a limit, and its true error or Dice.

python -m warpfactor.bench.large phantom 512 data        # fixed, moving and labels (of moving) .ome.zarr, truth.npy
warpfactor register data/fixed.ome.zarr data/moving.ome.zarr -o out --memory 2GB
python -m warpfactor.bench.large error data out
warpfactor apply data/labels.ome.zarr -o on_fixed.ome.zarr --labels --result out --memory 2GB
python -m warpfactor.bench.large labels data on_fixed.ome.zarr

python -m warpfactor.bench.large enlarge fixed.nii.gz 1024 data/fixed.ome.zarr   # and the moving image, its labels
python -m warpfactor.bench.large enlarge moving_labels.nii.gz 1024 data/labels.ome.zarr --labels
python -m warpfactor.bench.large dice fixed_labels.nii.gz on_fixed.ome.zarr        # after register and apply as above
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warpfactor as wf
from warpfactor.io.lazy import open_lazily, whole_planes
from warpfactor.kernels import select
from warpfactor.phantom import Phantom, phantom_slabs

PLANES = 32  # of a chunk on disk
SLAB = 8 << 20  # voxels that are painted at once: 1024^3 takes 3.0 GB; slabs of 32 planes of it took 18
STRIDE = 8  # voxels between those whose true displacement is kept
SCALE = 40_000  # of the 16-bit numbers: the phantom's intensities are about 0 to 1
SIDES = ("fixed", "moving")
ALL = slice(None)
NOISE = 0.02
PAINTED = 256  # voxels along an axis; larger phantoms are painted at half their resolution, which takes an eighth


def make(size: int, folder: Path) -> None:
    """A phantom of size^3 voxels as OME-Zarr with a stored level of half the resolution, 16 bits; and its truth."""
    import zarr

    folder.mkdir(parents=True, exist_ok=True)
    shape, kept = (size, size, size), []
    arrays = {side: _arrays(zarr, folder / f"{side}.ome.zarr", shape, 2, "uint16") for side in SIDES}
    (labels,) = _arrays(zarr, folder / "labels.ome.zarr", shape, 1, "uint8")
    thick = min(PLANES, max(STRIDE, SLAB // size**2 // STRIDE * STRIDE))
    for planes, part in phantom_slabs(shape, thick, noise=NOISE) if size <= PAINTED else _doubled(shape, thick):
        for side in SIDES:
            full = (getattr(part, side) * SCALE + 2000).round().clamp(0, 65535)
            arrays[side][0][planes] = full.numpy().astype(np.uint16)
            half = torch.nn.functional.avg_pool3d(full[None, None], 2)[0, 0].round()
            arrays[side][1][planes.start // 2 : planes.stop // 2] = half.numpy().astype(np.uint16)
        labels[planes] = part.moving_labels.numpy().astype(np.uint8)
        parts = (*part.displacement, part.fixed_labels)
        kept.append(np.stack([each[::STRIDE, ::STRIDE, ::STRIDE].numpy().astype(np.float32) for each in parts]))
    np.save(folder / "truth.npy", np.concatenate(kept, axis=1))


def _doubled(shape: tuple[int, int, int], thick: int) -> Iterator[tuple[slice, Phantom]]:
    """A phantom painted at half its resolution and interpolated, slab by slab; its noise is that of the full one."""
    half = shape[0] // 2, shape[1] // 2, shape[2] // 2
    found = phantom_slabs(half, thick // 2, noise=0.0, displacement_vox=2.0)
    planes, own = next(found)
    before = _volumes(own)[:, :1]
    for following in itertools.chain(found, [None]):
        after = _volumes(own)[:, -1:] if following is None else _volumes(following[1])[:, :1]
        yield _finer(planes, own, before, after)
        before = _volumes(own)[:, -1:]
        if following is not None:
            planes, own = following


def _finer(planes: slice, own: Phantom, before: Tensor, after: Tensor) -> tuple[slice, Phantom]:
    """A slab at twice its resolution; `before` and `after` are the planes around it to interpolate from."""
    whole = torch.cat([before, _volumes(own), after], dim=1)
    fine = torch.nn.functional.interpolate(whole[None], scale_factor=2, mode="trilinear")[0, :, 2:-2]
    for side, image in enumerate(fine[:2]):
        grain = np.random.default_rng([0, side, planes.start]).standard_normal(tuple(image.shape), dtype=np.float32)
        image += NOISE * torch.from_numpy(grain)
    doubled = [_repeated(labels) for labels in (own.fixed_labels, own.moving_labels)]
    part = replace(
        own,
        fixed=fine[0],
        moving=fine[1],
        displacement=2 * fine[2:],
        fixed_labels=doubled[0],
        moving_labels=doubled[1],
        mask=doubled[0] > 0,
    )
    return slice(2 * planes.start, 2 * planes.stop), part


def _volumes(part: Phantom) -> Tensor:
    """(5, D, H, W): both images and the displacement."""
    return torch.cat([part.fixed[None], part.moving[None], part.displacement])


def _repeated(labels: Tensor) -> Tensor:
    for axis in range(3):
        labels = labels.repeat_interleave(2, axis)
    return labels


def enlarge(source: Path, size: int, target: Path, *, labels: bool) -> None:
    """An image of size^3 voxels over the same field of view as OME-Zarr; labels are not mixed, and have one level.

    The axes are those of the file, and its position is left out.
    """
    import zarr

    image = wf.read_image(source)
    shape, own = (size, size, size), image.grid.shape
    volume = image.data[0].float()
    low, high = float(volume.min()), float(volume.max())
    spacing = [s * n / size for s, n in zip(image.grid.spacing_mm, own, strict=True)]
    arrays = _arrays(zarr, target, shape, 1 if labels else 2, "uint16", spacing)
    for start in range(0, size, PLANES):
        planes = slice(start, min(start + PLANES, size))
        if labels:
            places = [
                _nearest(np.arange(n)[part], n, m) for n, m, part in zip(shape, own, (planes, ALL, ALL), strict=True)
            ]
            arrays[0][planes] = volume.numpy()[np.ix_(*places)].astype(np.uint16)
            continue
        fine = _interpolated(volume, planes, size).sub_(low).mul_(SCALE / (high - low)).round_()
        arrays[0][planes] = fine.numpy().astype(np.uint16)
        half = torch.nn.functional.avg_pool3d(fine[None, None], 2)[0, 0].round()
        arrays[1][planes.start // 2 : planes.stop // 2] = half.numpy().astype(np.uint16)


def _interpolated(volume: Tensor, planes: slice, size: int) -> Tensor:
    """Some planes of a volume that is enlarged to size^3 voxels, linearly interpolated."""
    scale = [n / size for n in volume.shape]
    offset = [(s - 1) / 2 for s in scale]
    offset[0] += scale[0] * planes.start
    return select(torch.device("cpu")).resize(volume[None], (planes.stop - planes.start, size, size), scale, offset)[0]


def _nearest(index: Any, fine: int, coarse: int) -> Any:
    """Voxels of a coarse axis that those of a fine one over the same length lie in."""
    return ((index + 0.5) * coarse / fine).astype(int)


def _arrays(
    zarr: Any, path: Path, shape: tuple[int, int, int], levels: int, dtype: str, spacing: Sequence[float] = (1, 1, 1)
) -> list[Any]:
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    datasets, found = [], []
    for level in range(levels):
        own = tuple(n >> level for n in shape)
        found.append(group.create_array(str(level), shape=own, chunks=(PLANES, 128, 128), dtype=dtype))
        scale = [s * (1 << level) for s in spacing]
        place = [s * ((1 << level) - 1) / 2 for s in spacing]
        steps = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": place}]
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    axes = [{"name": axis, "type": "space", "unit": "millimeter"} for axis in "zyx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets, "name": path.name}]}
    return found


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


def label_error(folder: Path, path: Path) -> dict[str, float]:
    """Of labels that were carried to the fixed image: the share that is right and the mean Dice, at these voxels."""
    return _agreement(np.load(folder / "truth.npy")[3].round().astype(int), path)


def enlarged_dice(labels: Path, path: Path) -> dict[str, float]:
    """Of labels that were carried to an enlarged fixed image, and its own labels as they are on file."""
    own = wf.read_image(labels).data[0].numpy().astype(int)
    shape = open_lazily(path).grid.shape
    places = [_nearest(np.arange(0, n, STRIDE), n, m) for n, m in zip(shape, own.shape, strict=True)]
    return _agreement(own[np.ix_(*places)], path)


def _agreement(truth: Any, path: Path) -> dict[str, float]:
    """How labels on file, at every STRIDE-th voxel along each axis, agree with the true ones there."""
    found = open_lazily(path)
    planes = (found.read(0, whole_planes(found.grid, slice(z, z + 1))) for z in range(0, found.grid.shape[0], STRIDE))
    carried = np.concatenate([plane[:, ::STRIDE, ::STRIDE] for plane in planes]).astype(int)
    names = sorted(set(truth.ravel().tolist()) - {0})
    dice = [2 * ((truth == n) & (carried == n)).sum() / ((truth == n).sum() + (carried == n).sum()) for n in names]
    return {"right": float((truth == carried)[truth > 0].mean()), "dice": float(np.mean(dice)), "labels": len(names)}


def main(arguments: list[str]) -> None:
    """Make a phantom, enlarge an image, or print what a result or labels that were carried by it are worth."""
    task, paths = (arguments or [""])[0], [Path(argument) for argument in arguments[1:]]
    if task == "phantom":
        make(int(arguments[1]), paths[1])
    elif task == "enlarge":
        enlarge(paths[0], int(arguments[2]), paths[2], labels="--labels" in arguments)
    elif task in PRINTED:
        sys.stdout.write(json.dumps(PRINTED[task](*paths), indent=2) + "\n")
    else:
        raise SystemExit(__doc__)


PRINTED: dict[str, Callable[..., dict[str, Any]]] = {"error": error, "labels": label_error, "dice": enlarged_dice}

if __name__ == "__main__":
    main(sys.argv[1:])

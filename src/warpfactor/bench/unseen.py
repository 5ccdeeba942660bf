"""Images of kinds that no recipe was tuned on, made here, with known maps: what the default finds without options.

    python -m warpfactor.bench.unseen [--only heart] [--recipe default] [--output unseen.md]

Slices of a heart in two sequences, a gland in ultrasound and in MR, a chest whose scanner has filled what lies outside
its circle, and cells that repeat, are inverted or have tiny numbers. The moving image is the other painting of the same
scene, bent, turned and shifted by a random map. The set is small enough to be run after every change.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.bench.verdicts.bent import bend_of
from warpfactor.bench.verdicts.results import Draw, draw_of
from warpfactor.checks.examine import examine
from warpfactor.checks.limits import worst
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Transform
from warpfactor.phantom import phantom
from warpfactor.registration.case import case_of_result
from warpfactor.registration.run import register
from warpfactor.scene.levels import finest_spacing

POINTS = 1500
HEARTS = 6
SEQUENCES: tuple[Mapping[str, float], ...] = (  # brightness of a cine, of late enhancement, and of a T2 map
    {"air": 0.0, "fat": 0.9, "muscle": 0.3, "lung": 0.08, "blood": 1.0, "heart": 0.3},
    {"air": 0.0, "fat": 0.8, "muscle": 0.35, "lung": 0.05, "blood": 0.45, "heart": 0.08},
    {"air": 0.0, "fat": 0.7, "muscle": 0.3, "lung": 0.1, "blood": 0.12, "heart": 0.5},
)


@dataclass(frozen=True)
class UnseenPair:
    """Two images and points in them that belong together, (N, 3) LPS mm."""

    fixed: Image
    moving: Image
    fixed_points: np.ndarray
    moving_points: np.ndarray

    def error_vox(self, transform: Transform) -> float:
        """Mean distance in voxels of the fixed image's finest axis."""
        apart = np.linalg.norm(transform.map_points(self.fixed_points) - self.moving_points, axis=1)
        return float(apart.mean()) / finest_spacing(self.fixed.grid)


Maker = Callable[[Draw], UnseenPair]


def unseen_pairs() -> Iterator[tuple[str, Maker]]:
    """Names, and what makes each pair from random numbers that depend on the name."""
    for number in range(HEARTS):
        first, second = number % 3, (number + 1 + number // 3) % 3
        yield f"heart {number}", partial(heart, SEQUENCES[first], SEQUENCES[second])
    for number in range(2):
        yield f"gland {number}", partial(gland, swapped=number == 1)
    yield "chest, both circles filled", partial(chest, filled=(True, True))
    yield "chest, one circle filled", partial(chest, filled=(True, False))
    yield "cells", partial(cells, shape=(256, 256))
    yield "cells that repeat", partial(cells, shape=(256, 256), apart=24)
    yield "cells, inverted", partial(cells, shape=(256, 256), inverted=True)
    yield "cells, values of 1e-6", partial(cells, shape=(256, 256), gain=1e-6)
    yield "cells, values of 1e6", partial(cells, shape=(256, 256), gain=1e6)


def heart(first: Mapping[str, float], second: Mapping[str, float], draw: Draw) -> UnseenPair:
    """A short-axis slice of a chest in two sequences."""
    shape = (1, 128, 128)
    wave = [_noise(draw, shape, 40) for _ in range(6)]
    texture = _noise(draw, shape, 10)
    grain = [_noise(draw, shape, 0) for _ in range(2)]
    shading = [torch.exp(0.25 * _noise(draw, shape, 120)) for _ in range(2)]
    parts = [  # tissue, centre (y, x), radii, in pixels; later ones cover earlier ones
        ("fat", (2, 0), (56, 66)),
        ("muscle", (2, 0), (48, 58)),
        ("lung", (-4, 38), (34, 20)),
        ("lung", (-4, -41), (36, 19)),
        ("fat", (-4, 2), (29, 31)),
        ("heart", (-2, -14), (23, 20)),
        ("heart", (-2, 6), (23, 24)),
        ("blood", (-2, -14), (20, 17)),
        ("blood", (-2, 6), (15, 16)),
        ("heart", (4, 13), (3, 3)),
        ("blood", (38, 14), (8, 8)),
    ]
    inside = [_ellipse(shape, c, r, 2.5 * wave[k % 6]) for k, (_, c, r) in enumerate(parts)]
    images = []
    for values, noise, coil in zip((first, second), grain, shading, strict=True):
        image = torch.full(shape, values["air"])
        for (tissue, _, _), weight in zip(parts, inside, strict=True):
            image = torch.lerp(image, values[tissue] + 0.04 * texture, weight)
        images.append((image * coil, 0.04 * noise))
    counted = _ellipse(shape, (-3, 0), (28, 32), torch.zeros(shape)) > 0.5
    return _bent(images, 1.25, draw, counted)


def gland(draw: Draw, *, swapped: bool) -> UnseenPair:
    """A gland with its surroundings in MR, and in the fan of an ultrasound probe: echoes at borders, and speckle."""
    shape = (44, 60, 64)
    wave, texture = _noise(draw, shape, 30), _noise(draw, shape, 8)
    parts = [((0, 0, 0), (15, 13, 19)), ((2, -3, 0), (9, 7, 11)), ((0, 24, 0), (30, 8, 12)), ((16, -12, 6), (8, 9, 12))]
    inside = [_ellipse(shape, c, r, 1.5 * wave) for c, r in parts]
    mr = torch.full(shape, 0.75) + 0.1 * texture
    echo = torch.full(shape, 0.75)
    for weight, bright, loud in zip(inside, (0.65, 0.4, 0.25, 1.0), (0.35, 0.2, 0.05, 0.02), strict=True):
        mr, echo = torch.lerp(mr, torch.tensor(bright), weight), torch.lerp(echo, torch.tensor(loud), weight)
    echo = echo + 2 * torch.stack(torch.gradient(echo)).square().sum(0).sqrt()
    speckle = torch.stack([_noise(draw, shape, 1).square() for _ in range(8)]).mean(0).sqrt()
    far = torch.hypot(*(a + b for a, b in zip(_axes(shape)[1:], (50.0, 0.0), strict=True)))
    angle = torch.atan2(_axes(shape)[2], _axes(shape)[1] + 50.0)
    fan = (far > 26) & (far < 78) & (angle.abs() < 0.62)
    pair = _bent([(mr, 0.03 * _noise(draw, shape, 0)), (echo, torch.zeros(shape))], 1.2, draw, inside[0] > 0.5)
    seen = pair.moving.data[0] * torch.log1p(3 * speckle)
    pair = UnseenPair(
        pair.fixed, Image(torch.where(fan, seen, 0.0)[None], pair.moving.grid), pair.fixed_points, pair.moving_points
    )
    return UnseenPair(pair.moving, pair.fixed, pair.moving_points, pair.fixed_points) if swapped else pair


def chest(draw: Draw, *, filled: tuple[bool, bool]) -> UnseenPair:
    """A phantom in air in the units of a CT; what lies outside the circle of the scanner is filled."""
    shape, inset = (40, 72, 72), 10
    made = phantom((40, 52, 52), displacement_vox=0, seed=int(draw.integers(1000)), noise=0.0)
    image = torch.full(shape, -1000.0)
    image[:, inset:-inset, inset:-inset] = -1000 + 1400 * made.fixed
    noise = [20 * _noise(draw, shape, 0) for _ in range(2)]
    pair = _bent([(image, noise[0]), (image.clone(), noise[1])], 2.0, draw, image > -800, outside=-1000.0)
    _, y, x = _axes(shape)
    beyond = torch.hypot(y, x) > 36
    images = [
        Image(torch.where(beyond, -2000.0, each.data[0])[None], each.grid) if fill else each
        for each, fill in zip((pair.fixed, pair.moving), filled, strict=True)
    ]
    return UnseenPair(images[0], images[1], pair.fixed_points, pair.moving_points)


def cells(
    draw: Draw, *, shape: tuple[int, int], apart: int = 0, inverted: bool = False, gain: float = 1.0
) -> UnseenPair:
    """Cells anywhere, or in rows, in a microscope."""
    count = round(shape[0] * shape[1] / 240) if not apart else 0
    centres = [draw.uniform(0, shape) for _ in range(count)]
    if apart:
        rows, columns = (np.arange(apart // 2, n, apart) for n in shape)
        centres = [np.array((a, b)) + draw.normal(0, 1.5, 2) for a in rows for b in columns]
    image = torch.zeros((1, *shape))
    for y, x in centres:
        middle = (0.0, y - (shape[0] - 1) / 2, x - (shape[1] - 1) / 2)
        radii = (1.0, *draw.uniform(3, 7, 2))
        image += draw.uniform(0.3, 1.0) * _ellipse(image.shape, middle[1:], radii[1:], torch.zeros(image.shape))
    noise = [0.03 * _noise(draw, tuple(image.shape), 0) for _ in range(2)]
    other = 1.5 - image if inverted else image.clone()
    pair = _bent([(image, noise[0]), (other, noise[1])], 1.0, draw, torch.ones_like(image) > 0)
    images = [Image(gain * each.data, each.grid) for each in (pair.fixed, pair.moving)]
    return UnseenPair(images[0], images[1], pair.fixed_points, pair.moving_points)


def _bent(
    painted: list[tuple[Tensor, Tensor]], spacing: float, draw: Draw, counted: Tensor, outside: float | None = None
) -> UnseenPair:
    """The first painting, and the second one bent by a random map; each is a clean image and its noise."""
    (first, noise), (second, other) = painted
    shape = tuple(first.shape)
    grid = Grid.from_spacing(shape[1:] if shape[0] == 1 else shape, spacing)
    back = bend_of(grid, draw)
    edge = float(second.median()) if outside is None else outside
    seen = back.resample(Image(second[None], grid), grid, outside=edge).data + other
    where = back.resample(Image(counted[None].float(), grid), grid, outside=0.0).data[0] > 0.5
    index = torch.nonzero(where).numpy()
    moving = grid.index_to_world(index[:: 1 + len(index) // POINTS])
    return UnseenPair(Image((first + noise)[None], grid), Image(seen, grid), back.map_points(moving), moving)


def _axes(shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Voxels from the centre along z, y and x, (D, H, W) each."""
    return torch.meshgrid(*(torch.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")


def _ellipse(shape: tuple[int, ...], centre: tuple[float, ...], radii: tuple[float, ...], wave: Tensor) -> Tensor:
    """(D, H, W) share of each voxel inside an ellipse or ellipsoid whose surface is moved by so many voxels."""
    axes = _axes(tuple(shape))[-len(centre) :]
    size = torch.stack([((a - c) / r) ** 2 for a, c, r in zip(axes, centre, radii, strict=True)]).sum(0).sqrt()
    return torch.sigmoid(1.5 * ((1 - size) * min(radii) + wave))


def _noise(draw: Draw, shape: tuple[int, ...], width: float) -> Tensor:
    """(D, H, W) Gaussian noise of SD 1 with structures about so many voxels wide."""
    grain = torch.from_numpy(draw.standard_normal(shape)).float()
    if width > 1:
        sigma = [width / 4 if n > 1 else 0.0 for n in shape]
        grain = kernels.select("cpu").smooth_gaussian(grain[None].contiguous(), sigma)[0]
    return grain / grain.std()


def row_of(name: str, make: Maker, recipe: str, threads: int | None) -> str:
    """One row of the table."""
    pair = make(draw_of(name))
    found = register(pair.fixed, pair.moving, recipe=recipe, threads=threads)
    transforms = (Affine(dimension=pair.fixed.grid.ndim), found.affine, found.transform)
    errors = " | ".join(f"{pair.error_vox(transform):.2f}" for transform in transforms)
    figures, stage = found.figures.warp, found.history[-1]
    rough = "" if figures is None else f"{figures.jacobian_foreground.sd_log:.3f}"
    folds = 0 if figures is None else figures.jacobian.folded_count
    level = worst([check.level for check in examine(case_of_result(found)).checks])
    return f"| {name} | {errors} | {rough} | {folds} | {stage.metric} | {level} |"


def main(arguments: list[str] | None = None) -> list[str]:
    """Run the pairs and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m warpfactor.bench.unseen", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", help="Pairs whose names have this in them.")
    parser.add_argument("--recipe", default="default", help="By which they are registered.")
    parser.add_argument("--output", type=Path, default=Path("unseen.md"), help="File for the table.")
    parser.add_argument("--threads", type=int, help="At most so many.")
    given = parser.parse_args(arguments)
    lines = [
        "| pair | before, voxels | affine | warp | SD log J | folds | metric | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, make in unseen_pairs():
        if given.only is None or given.only in name:
            lines.append(row_of(name, make, given.recipe, given.threads))
            given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


if __name__ == "__main__":
    main()

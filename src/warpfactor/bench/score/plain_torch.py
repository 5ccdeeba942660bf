"""FactoredLM beside Adam in plain PyTorch: instance optimisation of one pair by autograd, without our kernels.

The moving image is resampled through an affine first. Then each optimizer gets the same loss, levels and iterations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import warpfactor as wf
from warpfactor.kernels import reference
from warpfactor.optim import FactoredLM, Paper, Pointwise, Root, Tile
from warpfactor.optim.conventions import layout_of

LEVELS = ((4, 100), (2, 50), (1, 25))  # factor and iterations
WINDOW = 5
SMOOTH: Mapping[str, Any] = {"sigma_grad": 1.0, "sigma_warp": 0.5}

Make = Callable[[Tensor], torch.optim.Optimizer]


@dataclass(frozen=True)
class Contender:
    """An optimizer, and the weight of a smoothness term in its loss."""

    name: str
    make: Make
    smoothness: float = 0.0


def _root(lr: float, sigma_warp: float) -> Make:
    rule = Paper(initial=16, relative=True)
    return lambda u: FactoredLM([u], lr, form=Root(), damping=rule, sigma_grad=1.0, sigma_warp=sigma_warp)


CONTENDERS = (
    Contender("FactoredLM, paper", lambda u: FactoredLM([u], **SMOOTH)),
    Contender("FactoredLM, tile 3", lambda u: FactoredLM([u], form=Tile(3), **SMOOTH)),
    Contender(
        "FactoredLM, relative",
        lambda u: FactoredLM([u], form=Pointwise(), damping=Paper(relative=True), **SMOOTH),
    ),
    *(
        Contender(f"FactoredLM, root, lr {lr}, sigma_warp {sigma}", _root(lr, sigma))
        for lr, sigma in ((0.5, 0.5), (0.5, 0.25), (1.0, 0.35))
    ),
    *(
        Contender(f"Adam, lr {lr}, smoothness {weight}", lambda u, lr=lr: torch.optim.Adam([u], lr=lr), weight)  # type: ignore[misc]
        for lr in (0.002, 0.01)
        for weight in (0.0, 0.3, 1.0, 3.0, 10.0)
    ),
)


def local_correlation(warped: Tensor, fixed: Tensor) -> Tensor:
    """Mean of 1 - cc² over the windows of the fixed image that have contrast; images are (1, 1, D, H, W)."""

    def mean(image: Tensor) -> Tensor:
        return functional.avg_pool3d(image, WINDOW, 1, WINDOW // 2, count_include_pad=False)

    first, second = mean(warped), mean(fixed)
    covariance = mean(warped * fixed) - first * second
    variance = mean(fixed * fixed) - second * second
    squared = covariance**2 / ((mean(warped * warped) - first * first) * variance + 1e-5)
    return (1 - squared)[variance > 1e-3].mean()


def roughness(u: Tensor) -> Tensor:
    """Mean squared difference of neighbouring displacements in voxels, (1, D, H, W, 3)."""
    scale = torch.tensor([(n - 1) / 2 for n in reversed(u.shape[1:4])])
    return sum(((u * scale).diff(dim=axis).square().mean() for axis in (1, 2, 3)), torch.zeros(()))


def optimise(fixed: Tensor, moving: Tensor, contender: Contender) -> tuple[Tensor, float, int]:
    """The displacement in voxels, (3, D, H, W), the last loss, and the numbers per voxel that the optimizer keeps."""
    u, value, kept = torch.zeros(1, 2, 2, 2, 3), 0.0, 0
    for factor, iterations in LEVELS:
        shape = [max(2, round(n / factor)) for n in fixed.shape]
        images = [functional.interpolate(i[None, None], shape, mode="area") for i in (fixed, moving)]
        u = _resized(u.detach(), shape).requires_grad_(True)
        value, kept = _optimise_level(u, images[0], images[1], contender, iterations)
    return layout_of(u.shape, "grid").displacements(u.detach())[0], value, kept


def _resized(u: Tensor, shape: list[int]) -> Tensor:
    return functional.interpolate(u.movedim(-1, 1), shape, mode="trilinear", align_corners=True).movedim(1, -1).clone()


def _optimise_level(
    u: Tensor, fixed: Tensor, moving: Tensor, contender: Contender, iterations: int
) -> tuple[float, int]:
    optimizer = contender.make(u)
    identity = functional.affine_grid(torch.eye(3, 4)[None], list(fixed.shape), align_corners=True)
    losses = []

    def closure() -> float:
        optimizer.zero_grad()
        warped = functional.grid_sample(moving, identity + u, align_corners=True, padding_mode="border")
        loss = local_correlation(warped, fixed)
        losses.append(loss.item())
        loss = loss + contender.smoothness * roughness(u)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    for _ in range(iterations):
        optimizer.step(closure)
    fields = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
    return losses[-1], sum(each.numel() for each in fields if each.ndim) // (u.numel() // 3)


@dataclass(frozen=True)
class PlainPair:
    """Images and labels of a pair on one grid, (D, H, W) each; the moving ones came through an affine."""

    fixed: Tensor
    moving: Tensor
    fixed_labels: Tensor
    moving_labels: Tensor


def prepared(images: tuple[Path, Path], labels: tuple[Path, Path], spacing_mm: float) -> PlainPair:
    """The pair on a grid of this spacing."""
    fixed, moving = (_standardised(wf.read_image(path)) for path in images)
    affine = wf.register(fixed, moving, recipe="affine").affine
    grid = fixed.grid.scaled([spacing_mm / s for s in fixed.grid.spacing_mm])
    return PlainPair(
        wf.Affine().resample(fixed, grid, outside=float(fixed.data.min())).data[0],
        affine.resample(moving, grid, outside=float(moving.data.min())).data[0],
        wf.Affine().resample(wf.read_labels(labels[0]), grid, mode="label").data[0],
        affine.resample(wf.read_labels(labels[1]), grid, mode="label").data[0],
    )


def _standardised(image: wf.Image) -> wf.Image:
    data = image.data.float()
    return wf.Image((data - data.mean()) / data.std(), image.grid)


def compare(pair: PlainPair) -> Iterator[dict[str, Any]]:
    """One row per contender: loss, Dice over the labels of both, share of folded voxels, CPU time, numbers kept."""
    for contender in CONTENDERS:
        began = time.process_time()
        u, loss, kept = optimise(pair.fixed, pair.moving, contender)
        seconds = time.process_time() - began
        labels = reference.sample_labels(pair.moving_labels, u, torch.eye(3, 4))
        yield {
            "optimizer": contender.name,
            "1 - LNCC": loss,
            "Dice": wf.measure.dice_figures(pair.fixed_labels, labels).mean_common,
            "folds, %": 100 * float((reference.jacobian_determinant(u) <= 0).double().mean()),
            "kept per voxel": kept,
            "CPU s": seconds,
        }


def main(arguments: list[str] | None = None) -> None:
    """Compare on one pair, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m warpfactor.bench.score.plain_torch", description=(__doc__ or "").split("\n")[0]
    )
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--spacing-mm", type=float, default=2.0, help="Of the images that are registered.")
    given = parser.parse_args(arguments)
    pair = prepared((given.fixed, given.moving), (given.fixed_labels, given.moving_labels), given.spacing_mm)
    before = wf.measure.dice_figures(pair.fixed_labels, pair.moving_labels).mean_common
    sys.stdout.write(f"affine: Dice {before:.4f}\n")
    for row in compare(pair):
        values = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
        sys.stdout.write("| " + " | ".join(values) + " |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Every optimizer of the paper on one labelled pair from one affine, its damping cliff, and what rejection does.

    python bench/optimizers.py FIXED FIXED_LABELS MOVING MOVING_LABELS [--quick]

Prints a Markdown table per study: Dice (mean over labels in both maps, nearest neighbour), SD of the log Jacobian and
folded voxels where the fixed image is not zero, last damping, rejected steps and seconds of the deformable stage.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

import warpfactor as wf
from warpfactor import io, kernels, quality
from warpfactor.optim import Convergence, Descent, Paper
from warpfactor.register.pair import make_scene
from warpfactor.register.pyramid import register_deformable

HEAD = "| setting | Dice | SD log J | folds | last damping | rejected | seconds |\n|---|---|---|---|---|---|---|"


def settings():
    """Name -> Deformable, study by study."""
    paper = wf.recipe("paper").deformable
    default = wf.recipe("default").deformable
    relative = replace(
        paper, units="spacing", boundary="nearest", truncate=3.0, smoothing="step", metric=default.metric
    )
    optimizers = {
        "pointwise, paper mode": paper,
        "tile 3x3x3, paper mode": replace(paper, descent=Descent("tile", tile_radius=1)),
        "adam, paper's smoothing, lr 0.5": replace(paper, descent=Descent("adam"), step=0.25),
        "sgd, paper's smoothing, step 0.5 voxel": replace(paper, descent=Descent("sgd"), step=0.5),
        "root, paper's smoothing and rule, relative damping": replace(
            paper, units="spacing", descent=Descent("root"), damping=Paper(initial=16, relative=True), step=0.5
        ),
        "pointwise, relative damping, smoothing by the step": replace(
            relative, damping=Paper(initial=1.0, relative=True)
        ),
        "adam, default's metric and smoothing": replace(default, descent=Descent("adam"), damping=Paper(), step=0.25),
        "root, default recipe": default,
    }
    cliff = {f"mu+ = {m:g}": replace(paper, damping=Paper(increase=m)) for m in (1.5, 2.3, 3.0, 5.0, 10.0)}
    endless = replace(paper, convergence=Convergence())
    cliff |= {
        f"mu+ = {m:g}, no stop when the cost rises": replace(endless, damping=Paper(increase=m))
        for m in (1.1, 1.5, 3.0)
    }
    rejection = {
        "no rejection": paper,
        "rejection, no cap": replace(paper, damping=Paper(tolerance=1.0)),
        "rejection, cap 1": replace(paper, damping=Paper(tolerance=1.0, cap=1.0)),
        "rejection, no cap, no stop when the cost rises": replace(endless, damping=Paper(tolerance=1.0)),
        "rejection, cap 1, no stop when the cost rises": replace(endless, damping=Paper(tolerance=1.0, cap=1.0)),
    }
    ours = {
        f"default, mu+ = {m:g}, initial damping x {k:g}": replace(
            default, damping=replace(default.damping, increase=m, initial=default.damping.initial * k)
        )
        for m, k in ((1.5, 1.0), (4.0, 1e-4), (4.0, 1e-2), (10.0, 1.0))
    }
    return {"Optimizers": optimizers, "The damping cliff": cliff, "Rejection": rejection, "Our damping": ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("fixed", "fixed_labels", "moving", "moving_labels"):
        parser.add_argument(name)
    parser.add_argument("--quick", action="store_true", help="a tenth of the iterations, to try the script")
    arguments = parser.parse_args()
    ops = kernels.select("cpu")
    fixed, moving = io.read_image(arguments.fixed), io.read_image(arguments.moving)
    labels = io.read_labels(arguments.fixed_labels), io.read_labels(arguments.moving_labels)
    affine = np.asarray(wf.register(fixed, moving, recipe="affine").affine.matrix)
    scene = make_scene(fixed, moving)
    through = fixed.grid.voxel_map(moving.grid, affine)
    inside = fixed.data[0] > 0

    def dice(field=None):
        warped = ops.sample(labels[1].data[0].float(), field, through, shape=fixed.grid.shape, mode="nearest")
        return quality.dice_figures(labels[0].data[0], warped.int()).mean_common

    print(f"affine: Dice {dice():.4f}", flush=True)
    for study, rows in settings().items():
        print(f"\n### {study}\n\n{HEAD}", flush=True)
        for name, how in rows.items():
            if arguments.quick:
                how = replace(how, iterations=tuple(max(1, n // 10) for n in how.iterations))
            began = time.perf_counter()
            found = register_deformable(scene, how, ops=ops, affine=affine)
            seconds = time.perf_counter() - began
            figures = quality.jacobian_figures(ops.jacobian_determinant(found.displacement), inside)
            rejected = sum(not r.accepted for r in found.records)
            print(
                f"| {name} | {dice(found.displacement):.4f} | {figures.sd_log:.3f} | {figures.folded_count} "
                f"| {found.records[-1].damping:.3g} | {rejected} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

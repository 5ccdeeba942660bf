"""From raw files to scored results on the evaluation images, with the recipes as they are: one Markdown table.

    python bench/endtoend.py DATA [--groups brain lung ...] [--recipe NAME]

DATA has the folders brain, lung, liver, hippocampus, slices2d and multimodal. A score is the mean Dice over the labels
in both maps (nearest neighbour), or the mean distance of landmarks in millimetres (lung: mean / median; liver: inside
the liver / outside), or mutual information. SD log J and folded voxels are of the warp in the whole image; of brains
where the fixed image is not zero. Seconds are of `register` alone: reading, affine, warp, inverse and figures.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import warpfactor as wf
from warpfactor import io, kernels, quality

BRAINS = [
    (1000, 1001),
    (1002, 1003),
    (1004, 1005),
    (1006, 1007),
    (1001, 1000),
    (1003, 1002),
    (1005, 1004),
    (1007, 1006),
]
HIPPOCAMPI = ("001", "003", "004", "006", "007", "008", "011", "014", "015", "017")
LIVERS = [("s18", "cyc_1_10", 32), ("s18", "cyc_3_10", 32), ("s19", "cyc_1_6", 36), ("s19", "cyc_1_9", 36)]


class Job(NamedTuple):
    """One registration and how to score it."""

    group: str
    name: str
    recipe: str
    fixed: Path
    moving: Path
    fixed_labels: Path | None = None
    moving_labels: Path | None = None
    landmarks: Path | None = None
    inside: int = 0
    masks: tuple[Path, Path] | None = None


def ring(items):
    """Each item with the next, the last with the first."""
    return zip(items, [*items[1:], items[0]], strict=True)


def jobs(data: Path) -> Iterator[Job]:
    for a, b in BRAINS:
        files = [data / "brain" / f"{n}_{kind}.nii.gz" for kind in ("t1_brain", "labels") for n in (a, b)]
        yield Job("brain", f"{a} <- {b}", "default", *files)
    lung = data / "lung"
    pair, marks = (lung / "lung_fixed.nii.gz", lung / "lung_moving.nii.gz"), lung / "landmarks_51_corrected.csv"
    masks = (lung / "lung_fixed_mask.nii.gz", lung / "lung_moving_mask.nii.gz")
    yield Job("lung", "no masks", "lung", *pair, landmarks=marks)
    yield Job("lung", "with masks", "lung", *pair, landmarks=marks, masks=masks)
    for subject, cycle, inside in LIVERS:
        files = [data / "liver" / f"{subject}_{kind}.nii.gz" for kind in ("fixed_exh", f"moving_{cycle}")]
        marks = data / "liver" / f"{subject}_{cycle}_landmarks.csv"
        yield Job("liver", f"{subject} {cycle}", "abdomen", *files, landmarks=marks, inside=inside)
    for a, b in ring(HIPPOCAMPI):
        files = [data / "hippocampus" / f"hippocampus_{n}_{kind}.nii.gz" for kind in ("img", "lab") for n in (a, b)]
        yield Job("hippocampus", f"{a} <- {b}", "default", *files)
    for a, b in ring(range(1, 11)):
        kinds = ("slice118", "DKT31_CMA_labels_slice118")
        files = [data / "slices2d" / f"OASIS-TRT-20-{n}_{kind}.nii.gz" for kind in kinds for n in (a, b)]
        yield Job("slices2d", f"{a} <- {b}", "default", *files)
    pair = (data / "multimodal" / f"rniftyreg_{n}.nii.gz" for n in ("flash_t1", "epi_t2"))
    yield Job("multimodal", "T1 <- T2", "multimodal", *pair)


def score(job: Job, transform) -> tuple[float, ...]:
    """Dice, or landmark distances, of a transform; mutual information where there is neither."""
    if job.fixed_labels and job.moving_labels:
        fixed, moving = io.read_labels(job.fixed_labels), io.read_labels(job.moving_labels)
        warped = transform.resample(moving, fixed.grid, mode="nearest")
        return (quality.dice_figures(fixed.data[0], warped.data[0]).mean_common,)
    if job.landmarks:
        marks = io.read_landmarks(job.landmarks)
        error = quality.target_registration_error(transform.map_points(marks.fixed), marks.moving).per_point
        if job.inside:
            return float(np.mean(error[: job.inside])), float(np.mean(error[job.inside :]))
        return float(np.mean(error)), float(np.median(error))
    fixed, moving = io.read_image(job.fixed), io.read_image(job.moving)
    warped = transform.resample(moving, fixed.grid)
    return (quality.mutual_information(fixed.data[0], warped.data[0]),)


def run(job: Job, recipe: str | None) -> list[float]:
    """Scores before, after the affine and after the warp; SD log J, folds, inverse error, seconds."""
    masks = {"fixed_mask": job.masks[0], "moving_mask": job.masks[1]} if job.masks else {}
    began = time.perf_counter()
    result = wf.register(job.fixed, job.moving, recipe=recipe or job.recipe, **masks)
    seconds = time.perf_counter() - began
    identity = wf.Affine(np.eye(4), dimension=result.warped.grid.ndim)
    scores = [score(job, t) for t in (identity, result.affine, result.transform)]
    sd = folds = inverse = 0.0
    if result.warp is not None and result.figures.warp is not None:
        determinant = kernels.select("cpu").jacobian_determinant(result.warp.displacement.contiguous())
        inside = io.read_image(job.fixed).data[0] > 0 if job.group == "brain" else None
        figures = quality.jacobian_figures(determinant, inside)
        sd, folds = figures.sd_log, figures.folded_count
        inverse = result.figures.warp.back_and_there_vox.mean
    texts = [" / ".join(f"{x:.3f}" for x in s) for s in scores]
    name = f"{job.group} {job.name}"
    print(f"| {name} | {' | '.join(texts)} | {sd:.3f} | {folds} | {inverse:.3f} | {seconds:.1f} |", flush=True)
    return [s[0] for s in scores] + [sd, folds, inverse, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--groups", nargs="*", help="only these")
    parser.add_argument("--recipe", help="instead of each group's own")
    arguments = parser.parse_args()
    print("| pair | before | affine | warp | SD log J | folds | inverse error, voxels | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    groups: dict[str, list[list[float]]] = {}
    for job in jobs(arguments.data):
        if not arguments.groups or job.group in arguments.groups:
            groups.setdefault(job.group, []).append(run(job, arguments.recipe))
    for group, rows in groups.items():
        mean = np.mean(rows, axis=0)
        text = " | ".join(f"{x:.4f}" for x in mean[:3])
        folds = int(np.sum(rows, axis=0)[4])
        print(
            f"| **{group}, mean of {len(rows)}** | {text} | {mean[3]:.3f} | {folds} | {mean[5]:.3f} | {mean[6]:.1f} |"
        )


if __name__ == "__main__":
    main()

"""A cohort of small phantoms as files: a template with labels, some people, and their table."""

import shutil
from pathlib import Path

import torch

import warpfactor as wf
from small import GRID, SHAPE

HEADER = "name,fixed,moving,fixed_labels,moving_labels,group,carry"


def write_people(folder: Path, count: int = 3) -> Path:
    """Write the files and the table.csv of a cohort; the people differ in how the template is bent."""
    folder.mkdir(exist_ok=True)
    lines = [HEADER]
    base = wf.phantom.phantom(SHAPE, seed=3)
    image, labels = wf.Image(base.moving[None], GRID), wf.Image(base.moving_labels[None].to(torch.int32), GRID)
    wf.write_image(image, folder / "template.nii.gz")
    wf.write_image(labels, folder / "template_labels.nii.gz")
    for number in range(count):
        warp = wf.Warp(wf.phantom.phantom(SHAPE, displacement_vox=1.5, seed=number).displacement, GRID)
        wf.write_image(warp.resample(image, GRID), folder / f"sub{number}.nii.gz")
        wf.write_image(warp.resample(labels, GRID, mode="label"), folder / f"sub{number}_labels.nii.gz")
        files = f"template.nii.gz,sub{number}.nii.gz,template_labels.nii.gz,sub{number}_labels.nii.gz"
        lines.append(f"p{number},{files},{'ab'[number % 2]},{f'sub{number}.nii.gz' if number == 0 else ''}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_bids(folder: Path, source: Path) -> Path:
    """The same people as a BIDS dataset of two sessions, with an image of another suffix."""
    (folder / "derivatives").mkdir(parents=True)
    (folder / "dataset_description.json").write_text("{}")
    for number, name in enumerate(("sub-01_ses-1_T1w", "sub-01_ses-2_T1w", "sub-02_ses-1_run-01_T1w")):
        subject, session = name.split("_")[:2]
        place = folder / subject / session / "anat"
        place.mkdir(parents=True)
        shutil.copy(source / f"sub{number}.nii.gz", place / f"{name}.nii.gz")
    shutil.copy(source / "sub0.nii.gz", folder / "sub-01" / "ses-1" / "anat" / "sub-01_ses-1_T2w.nii.gz")
    return folder


def volumes(folder: Path) -> dict[str, bytes]:
    """The transforms and images of a result folder, to compare bit for bit."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix not in (".json", ".html")}

"""A small pair of images, arrays and files, and settings with which a registration takes a fraction of a second."""

from pathlib import Path

import torch

import warpfactor as wf

SHAPE = (24, 26, 24)
LINEAR = {"linear.levels": [2], "linear.iterations": [3], "linear.starts": ["identity"]}
DEFORMABLE = {"deformable.levels": [2, 1], "deformable.iterations": [6, 3]}
QUICK = {**LINEAR, **DEFORMABLE}
WARP_ONLY = {"linear": None, **DEFORMABLE}
QUICK_OPTIONS = [
    part
    for setting in (
        "linear.levels=2",
        "linear.iterations=3",
        "linear.starts=identity",
        "deformable.levels=2,1",
        "deformable.iterations=6,3",
    )
    for part in ("--set", setting)
]
GRID = wf.Grid.from_itk(SHAPE[::-1], (-20.0, 11.0, 5.0), (1.5, 1.5, 1.5), (-1, 0, 0, 0, -1, 0, 0, 0, 1))


def pair(shape: tuple[int, int, int] = SHAPE, **options: object) -> wf.phantom.Phantom:
    return wf.phantom.phantom(shape, displacement_vox=1.5, seed=3, **options)


def image(data: torch.Tensor, grid: wf.Grid = GRID, name: str = "image") -> wf.Image:
    return wf.Image(data[None], grid, name)


def write_pair(folder: Path) -> Path:
    """fixed, moving, their labels and a mask as .nii.gz files in `folder`."""
    made = pair()
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        wf.write_image(image(getattr(made, name)), folder / f"{name}.nii.gz")
    wf.write_image(image(made.mask.to(torch.uint8)), folder / "mask.nii.gz")
    return folder

"""Greedy (picsl_greedy): affine and greedy diffeomorphic registration, called in this process.

Greedy writes the affine in RAS millimetres as text, and the warp in LPS millimetres, rounded to a tenth of a voxel
unless `-wp 0` is given. Both map from fixed to moving; the warp comes first. The affine starts from a random jitter,
so a seed is set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warpfactor.bench.peers.base import Peer, load
from warpfactor.bench.run.task import Task, TaskResult
from warpfactor.errors import InputError
from warpfactor.geometry.grid import RAS_TO_LPS, Matrix
from warpfactor.geometry.itk import sitk
from warpfactor.geometry.transform import Affine, Chain
from warpfactor.io import read_transform

_SETTINGS = {
    "affine_radius": 4,
    "affine_iterations": "100x50x10",
    "radius": 2,
    "iterations": "100x50x10",
    "sigma": "1.732vox 0.707vox",
    "metric": "NCC",
    "seed": 1,
}


def _run(task: Task) -> TaskResult:
    case, how, tool = task.case, task.settings, load("picsl_greedy")
    ndim = _dimension(case.fixed)
    affine, warp = task.scratch / "affine.mat", task.scratch / "warp.nii"
    for path in (*case.files().values(), task.scratch):
        if " " in str(path):
            raise InputError(f"{path}: Greedy splits paths at spaces; use a folder without spaces in its name.")
    greedy = tool.Greedy2D() if ndim == 2 else tool.Greedy3D()
    pair = f"-d {ndim} -threads {task.threads} -seed {how['seed']} -V 0 -i {case.fixed} {case.moving} {_masks(task)}"
    greedy.execute(
        f"{pair} -a -dof 12 -ia-image-centers -m {_metric(how['metric'], how['affine_radius'], ndim)} "
        f"-n {how['affine_iterations']} -o {affine}"
    )
    greedy.execute(
        f"{pair} -m {_metric(how['metric'], how['radius'], ndim)} -it {affine} -n {how['iterations']} "
        f"-s {how['sigma']} -wp 0 -o {warp}"
    )
    return TaskResult(lambda: _transform(warp, affine, ndim))


def _transform(warp: Path, affine: Path, ndim: int) -> Chain:
    return Chain((read_transform(warp), Affine(_lps(np.loadtxt(affine)), dimension=ndim)), "fixed", "moving")


def _dimension(path: Path) -> int:
    """Dimension of an image, 2 or 3, from its header."""
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    return int(reader.GetDimension())


def _metric(name: str, radius: int, ndim: int) -> str:
    """Option for a metric; window metrics have a radius along every axis."""
    return f"{name} {'x'.join([str(radius)] * ndim)}" if name in ("NCC", "WNCC") else name


def _masks(task: Task) -> str:
    fixed, moving = task.mask_files()
    return " ".join(f"{flag} {path}" for flag, path in (("-gm", fixed), ("-mm", moving)) if path is not None)


def _lps(ras: Matrix) -> Matrix:
    """4x4 matrix in LPS from Greedy's matrix in RAS, which is 4x4 or, in 2-D, 3x3."""
    matrix = np.eye(4)
    ndim = len(ras) - 1
    matrix[:ndim, :ndim], matrix[:ndim, 3] = ras[:ndim, :ndim], ras[:ndim, ndim]
    lps: Matrix = RAS_TO_LPS @ matrix @ RAS_TO_LPS
    return lps


GREEDY = Peer(
    name="greedy",
    description="Greedy: affine and greedy diffeomorphic registration by NCC, 100x50x10 iterations.",
    module="picsl_greedy",
    package="picsl_greedy",
    settings=_SETTINGS,
    run=_run,
)

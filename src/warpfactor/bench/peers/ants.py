"""ANTs, through antspyx: the stages of the scripts antsRegistrationSyN and antsRegistrationSyNQuick."""

from __future__ import annotations

from typing import Any

from warpfactor.bench.peers.base import Peer, load
from warpfactor.bench.run.task import Task, TaskResult
from warpfactor.io import read_transform


def _run(task: Task) -> TaskResult:
    ants = load("ants")
    case, how = task.case, task.settings
    fixed, moving = (ants.image_read(str(path)) for path in (case.fixed, case.moving))
    found = ants.registration(
        fixed,
        moving,
        type_of_transform=how["type"],
        outprefix=f"{task.scratch}/",
        random_seed=int(how["seed"]),
        **_masks(ants, task),
    )
    files = list(found["fwdtransforms"])
    return TaskResult(lambda: read_transform(files, source="fixed", target="moving"))


def _masks(ants: Any, task: Task) -> dict[str, Any]:
    fixed, moving = task.mask_files()
    files = {"mask": fixed, "moving_mask": moving}
    return {name: ants.image_read(str(path)) for name, path in files.items() if path is not None}


def _peer(name: str, kind: str, description: str) -> Peer:
    return Peer(name, description, "ants", "antspyx", {"type": kind, "seed": 1}, _run)


SYN_QUICK = _peer(
    "ants-synquick",
    "antsRegistrationSyNQuick[s]",
    "ANTs SyNQuick: rigid, affine and SyN by mutual information.",
)
SYN = _peer(
    "ants-syn",
    "antsRegistrationSyN[s]",
    "ANTs SyN: rigid and affine by mutual information, SyN by cross-correlation; slow.",
)

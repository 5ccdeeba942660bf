"""The Triton backend in Triton's interpreter, in a process of its own: `python interpreted.py TASK` prints JSON.

Triton decides at import whether it interprets, so the variable is set before anything else is imported.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

import warpfactor as wf
from warpfactor import kernels
from warpfactor.checks.device.check import SHAPES, check_backend
from warpfactor.kernels import triton
from warpfactor.kernels.triton import slabs

CPU = torch.device("cpu")


def checks() -> dict[str, list[dict[str, Any]]]:
    """Every problem of the device check, for a volume and a slice, with slabs of a few planes."""
    slabs.BYTES, slabs.LEAST = 0, 3
    found: dict[str, list[dict[str, Any]]] = {}
    for each in check_backend("triton", triton, CPU, shapes=SHAPES[:2], timed_shape=None).checks:
        entry = {"shape": each.shapes[0], "images": each.images, "error": each.error, "trouble": each.trouble}
        found.setdefault(each.problem.title, []).append(entry)
    return found


TASKS: dict[str, Callable[[], Any]] = {"checks": checks}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy's, of lanes that are masked afterwards
    torch.set_num_threads(1)
    kernels.add_backend(dataclasses.replace(kernels.BACKENDS["triton"], devices=("cpu",)))
    print(json.dumps(TASKS[sys.argv[1]]()))
    del wf

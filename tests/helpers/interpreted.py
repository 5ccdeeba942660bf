"""The Triton backend in Triton's interpreter, in a process of its own: `python interpreted.py TASK` prints JSON.

Triton decides at import whether it interprets, so the variable is set before anything else is imported.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import warpfactor as wf
from warpfactor import kernels
from warpfactor.bench.gpu import traffic
from warpfactor.checks.device.check import check_backend
from warpfactor.kernels import buffers, triton
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.kernel import Kernel
from warpfactor.optim import SGD, Adam, Demons, Root, Tile, Trust
from warpfactor.recipebook.recipe import Recipe
from warpfactor.recipebook.table import RECIPES
from warpfactor.scene.levels import Level
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene
from warpfactor.stages.device import _begun, _Turns, run_level, run_together
from warpfactor.stages.level import Carried, LevelSolver
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC, MI, MIND, MSE

CPU = torch.device("cpu")
SHAPES = (((6, 5, 7), (5, 6, 8)), ((1, 9, 7), (1, 8, 9)))


def checks() -> dict[str, list[dict[str, Any]]]:
    """Every problem of the device check, for a volume and a slice, with slabs of a few planes."""
    slabs.BYTES, slabs.LEAST = 0, 3
    found: dict[str, list[dict[str, Any]]] = {}
    for each in check_backend("triton", triton, CPU, shapes=SHAPES, timed_shape=None).checks:
        entry = {"shape": each.shapes[0], "images": each.images, "error": each.error, "trouble": each.trouble}
        found.setdefault(each.problem.title, []).append(entry)
    return found


def _warp(metric: Any, optimizer: Any, damping: Any = None, **options: Any) -> Deformable:
    return Deformable(metric=metric, optimizer=optimizer, damping=damping or Trust(), **options)


VOLUME, SLICE = (16, 17, 16), (1, 20, 23)
WARPS = {
    "lncc, root": (VOLUME, _warp(LNCC(3, symmetric=True), Root(), Trust(), volume=0.5)),
    "lncc of the paper, pointwise": (SLICE, replace(RECIPES["paper"].deformable, metric=LNCC(3, exact=False))),
    "lncc, tile": (SLICE, _warp(LNCC(5, window="gaussian", squared=False), Tile(2), storage="int16")),
    "mse, demons": (VOLUME, _warp(MSE(symmetric=True), Demons())),
    "mse, sgd": (SLICE, _warp(MSE(), SGD(), storage="float16")),
    "mi, adam": (SLICE, _warp(MI(), Adam())),
    "mind, root": (SLICE, _warp(MIND(), Root(), Trust())),
}
ONE_LEVEL = {"deformable.levels": (1.0,), "deformable.iterations": (2,)}
WHOLE = {
    "linear.metric": "ncc",
    "linear.levels": (1,),
    "linear.iterations": (2,),
    "linear.starts": ("identity",),
    "deformable.levels": (2, 1),
    "deformable.iterations": (2, 1),
}


def registrations() -> dict[str, dict[str, float]]:
    """How far whole registrations are from those on the reference."""
    found = {name: _apart(shape, Recipe(name, "", (), warp), ONE_LEVEL) for name, (shape, warp) in WARPS.items()}
    return found | {"default": _apart((1, 24, 26), RECIPES["default"], WHOLE)}


def _apart(shape: tuple[int, int, int], recipe: Recipe, changes: dict[str, Any]) -> dict[str, float]:
    """The largest displacement, and how far apart warps, inverses, affines and costs of the two backends are."""
    made = wf.phantom.phantom(shape, displacement_vox=1.0)
    options: dict[str, Any] = {"recipe": recipe, "overrides": changes}
    costs: tuple[list[Any], list[Any]] = ([], [])
    ours, theirs = (
        wf.register(made.fixed, made.moving, **options, backend=backend, progress=events.append)
        for backend, events in zip(("triton", "reference"), costs, strict=True)
    )
    return {
        "moved": float(theirs.warp.displacement.abs().max()),
        "warp": float((ours.warp.displacement - theirs.warp.displacement).abs().max()),
        "inverse": float((ours.inverse_warp.displacement - theirs.inverse_warp.displacement).abs().max()),
        "affine": float(abs(ours.affine.matrix - theirs.affine.matrix).max()),
        "cost": max(abs(a.cost - b.cost) for a, b in zip(*costs, strict=True)),
    }


WIDE = {"sigma_grad": traffic.TAIL_SIGMA, "tail": traffic.TAIL}
ITERATIONS = {
    "lncc, root, pointwise": _warp(LNCC(traffic.WINDOW, symmetric=True), Root(), Trust(reject=False), **WIDE),
    "mse, tile": _warp(MSE(), Tile(traffic.TILE), Trust(reject=False), **WIDE),
    "mi, adam": _warp(MI(), Adam(), **WIDE),
    "mind, root, pointwise": _warp(MIND(), Root(), Trust(reject=False), **WIDE),
}


def iterations() -> dict[str, dict[str, Any]]:
    """Which kernels one iteration launches, how often, and the bytes that its level holds besides the images.

    Of a level that does not wait for the device, the launches of its turn; Adam waits.
    """
    buffers.new_field = lambda shape, device="cpu", dtype=torch.float32: torch.empty(shape, dtype=dtype)
    seen: Counter[str] = Counter()
    original = Kernel.launch

    def launch(kernel: Kernel, *arguments: Any, **constants: Any) -> None:
        seen[kernel.name] += 1
        original(kernel, *arguments, **constants)

    Kernel.launch = launch  # type: ignore[method-assign, assignment]
    turn = _Turns._turn

    def counted(self: _Turns, **options: Any) -> None:
        seen.clear()
        turn(self, **options)

    _Turns._turn = counted  # type: ignore[method-assign]
    found, scene = {}, _scene()
    for name, settings in ITERATIONS.items():
        with Held([side.data for side in scene.sides]) as held:
            solver, warp, carried = _level(scene, settings)
            seen.clear()
            held.most = held.now
            run_level(solver, warp, carried)
        found[name] = {"launches": dict(seen), "bytes": held.most}
    return found


class Held(TorchDispatchMode):
    """Counts the bytes of the tensors that live, but for those given; `most` is the largest sum so far."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.known = {each.untyped_storage().data_ptr() for each in known}
        self.owners: Counter[int] = Counter()
        self.sizes: dict[int, int] = {}
        self.most = 0

    @property
    def now(self) -> int:
        return sum(self.sizes.values())

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = function(*arguments, **(options or {}))
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor):
                place = each.untyped_storage().data_ptr()
                if place in self.known:
                    continue
                self.owners[place] += 1
                self.sizes[place] = each.untyped_storage().nbytes()
                weakref.finalize(each, self._drop, place)
        self.most = max(self.most, self.now)
        return found

    def _drop(self, place: int) -> None:
        self.owners[place] -= 1
        if not self.owners[place]:
            self.sizes.pop(place, None)


LEVEL = (18, 16, 17)
MATRIX = torch.eye(3, 4, dtype=torch.float64)


def _scene(shape: tuple[int, int, int] = LEVEL, seed: int = 0) -> Scene:
    made = wf.phantom.phantom(shape, seed=seed)
    grid = wf.Grid.from_itk(shape[::-1], (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1, 0, 0, 0, 1, 0, 0, 0, 1))
    images = [wf.Image(data[None], grid) for data in (made.fixed, made.moving)]
    return make_scene(*images, ops=kernels.select("cpu", "triton"))


def _level(scene: Scene, settings: Deformable) -> tuple[LevelSolver, torch.Tensor, Carried]:
    """A solver of one iteration on the Triton backend, its warp and what it carries."""
    ops = kernels.select("cpu", "triton")
    level = Level(0, 1.0, 1, True, scene)
    warp = buffers.new_field((3, *LEVEL)).zero_()
    solver = LevelSolver(level, MATRIX, settings, ops)
    return solver, warp, Carried(state=settings.optimizer.init(warp))


_DEFAULT = replace(RECIPES["default"].deformable, metric=LNCC(3, symmetric=True), sigma_grad=1.0, agreement=0.01)
_EAGER = Trust(initial=0.5, floor=0.1, increase=8, copy_finest=False)
UNWAITED = {
    "undone from a copy": (replace(_DEFAULT, damping=_EAGER, step=1.5), False),
    "looked at before": (replace(_DEFAULT, damping=_EAGER, step=1.5), True),
    "paper": (replace(RECIPES["paper"].deformable, metric=LNCC(3, exact=False)), True),
    "mi": (replace(_DEFAULT, metric=MI(), agreement=0.0), True),
}


SMALL = (1, 16, 17)


def unwaited() -> dict[str, dict[str, Any]]:
    """A level that waits for its device and one that does not: how they differ, and what the turns of that one do.

    The second one also together with another pair: whether both are as if alone, and with as many launches.
    """
    pair, found = (_scene(SMALL), _scene(SMALL, seed=1)), {}
    for name, (settings, finest) in UNWAITED.items():
        theirs, *rest = _run(LevelSolver.run, pair[0], settings, finest)
        with Turns() as seen:
            ours, *others = _run(run_level, pair[0], settings, finest)
        with Turns() as shared:
            together = _both(pair, settings, finest)
        second = _run(run_level, pair[1], settings, finest)
        alone = ((ours, *others), second)
        found[name] = {
            "moved": float(theirs.abs().max()),
            "apart": float((theirs - ours).abs().max()),
            "same": rest == others,
            "rejected": sum(not accepted for _, accepted in others[1]),
            "turns": len(seen.turns),
            "kinds": sum(turn not in seen.turns[:number] for number, turn in enumerate(seen.turns)),
            "reads": seen.reads + shared.reads,
            "alike": all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(together, alone, strict=True)),
            "differ": float((ours - second[0]).abs().max()),
            "launches": [max(map(len, each.turns)) for each in (seen, shared)],
        }
    return found


def _solver(scene: Scene, settings: Deformable, finest: bool, events: list[Any]) -> LevelSolver:
    return LevelSolver(Level(0, 1.0, 6, finest, scene), MATRIX, settings, triton, events.append)


def _run(run: Callable[..., Any], scene: Scene, settings: Deformable, finest: bool) -> tuple[Any, ...]:
    """Warp, ending and what was reported of a level."""
    events: list[Any] = []
    warp, ending = run(_solver(scene, settings, finest, events), torch.zeros((3, *SMALL)), Carried())
    return warp, ending.value, [(event.number, event.accepted) for event in events]


def _both(scenes: tuple[Scene, Scene], settings: Deformable, finest: bool) -> list[tuple[Any, ...]]:
    """The same of two pairs that are run together."""
    events: tuple[list[Any], list[Any]] = ([], [])
    solvers = [_solver(scene, settings, finest, told) for scene, told in zip(scenes, events, strict=True)]
    tasks = [_begun(solver, torch.zeros((3, *SMALL)), Carried()) for solver in solvers]
    found: Any = run_together([task for task in tasks if task is not None])
    return [
        (warp, ending.value, [(event.number, event.accepted) for event in told])
        for (warp, ending), told in zip(found, events, strict=True)
    ]


class Turns:
    """The launches of every turn with their numbers, and how often anybody but the interpreter reads a tensor."""

    READS = ("tolist", "item", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")

    def __init__(self) -> None:
        self.turns: list[list[Any]] = []
        self.within, self.reads = False, 0

    def __enter__(self) -> "Turns":
        self.kept = [(Kernel, "launch"), (_Turns, "_turn"), *((torch.Tensor, name) for name in self.READS)]
        self.originals = [getattr(owner, name) for owner, name in self.kept]
        launch, turn, *reads = self.originals

        def launched(kernel: Kernel, grid: Any, *arguments: Any, **constants: Any) -> None:
            if self.within:
                numbers = [each for each in arguments if not isinstance(each, torch.Tensor)]
                self.turns[-1].append((kernel.name, grid, numbers, constants))
            launch(kernel, grid, *arguments, **constants)

        def turned(turns: _Turns, **options: Any) -> None:
            self.turns.append([])
            self.within = True
            turn(turns, **options)
            self.within = False

        def read(original: Any) -> Any:
            def counted(tensor: torch.Tensor, *arguments: Any) -> Any:
                caller = sys._getframe(1).f_globals["__name__"]
                ours = not caller.startswith("triton.") and tensor.shape[-2:] != MATRIX.shape
                self.reads += self.within and ours
                return original(tensor, *arguments)

            return counted

        for (owner, name), new in zip(self.kept, [launched, turned, *map(read, reads)], strict=True):
            setattr(owner, name, new)
        return self

    def __exit__(self, *error: object) -> None:
        for (owner, name), original in zip(self.kept, self.originals, strict=True):
            setattr(owner, name, original)


TASKS: dict[str, Callable[[], Any]] = {
    "checks": checks,
    "registrations": registrations,
    "iterations": iterations,
    "unwaited": unwaited,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy's, of lanes that are masked afterwards
    torch.set_num_threads(1)
    kernels.add_backend(replace(kernels.BACKENDS["triton"], devices=("cpu",)))
    print(json.dumps(TASKS[sys.argv[1]]()))

"""The Triton backend in Triton's interpreter, in a process of its own: `python interpreted.py TASK...` prints JSON.

Triton decides at import whether it interprets, so the variable is set before anything else is imported.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from triton.runtime import interpreter

import warpfactor as wf
from held import Held
from warpfactor import kernels
from warpfactor.bench.gpu import traffic
from warpfactor.checks.device.check import check_backend
from warpfactor.kernels import buffers, reference, triton
from warpfactor.kernels.triton import slabs
from warpfactor.kernels.triton.kernel import Kernel
from warpfactor.optim import SGD, Adam, Convergence, Demons, Paper, Root, Tile, Trust
from warpfactor.recipebook.recipe import Recipe
from warpfactor.recipebook.table import RECIPES
from warpfactor.scene.levels import Level
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene
from warpfactor.stages import device, level
from warpfactor.stages.decisions import Decisions, State
from warpfactor.stages.device import _begun, _Turns, run_level, run_together
from warpfactor.stages.level import Carried, LevelSolver
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC, MI, MIND, MSE, Mixed

CPU = torch.device("cpu")
SHAPES = (((7, 5, 4), (5, 4, 6)), ((1, 9, 7), (1, 8, 9)))  # of the planes, so many that rings come round


def checks() -> dict[str, list[dict[str, Any]]]:
    """Every problem of the device check, for a volume and a slice, with slabs of a few planes."""
    found: dict[str, list[dict[str, Any]]] = {}
    with patch.multiple(slabs, BYTES=0, LEAST=3):
        report = check_backend("triton", triton, CPU, shapes=SHAPES, timed_shape=None, half=True)
    for each in report.checks:
        entry = {"shape": each.shapes[0], "images": each.images, "error": each.error, "trouble": each.trouble}
        found.setdefault(each.problem.title, []).append(entry)
    return found


def _warp(metric: Any, optimizer: Any, damping: Any = None, **options: Any) -> Deformable:
    return Deformable(metric=metric, optimizer=optimizer, damping=damping or Trust(), **options)


VOLUME, SLICE = (8, 10, 9), (1, 20, 23)
WARPS = {
    "lncc, root": (VOLUME, _warp(LNCC(3, symmetric=True), Root(), Trust(), volume=0.5)),
    "lncc of the paper, pointwise": (SLICE, replace(RECIPES["paper"].deformable, metric=LNCC(3, exact=False))),
    "lncc, tile": (SLICE, _warp(LNCC(5, window="gaussian", squared=False), Tile(2), storage="int16")),
    "mse, demons": (VOLUME, _warp(MSE(symmetric=True), Demons())),
    "mse, sgd": (SLICE, _warp(MSE(), SGD(), storage="float16")),
    "mi, adam": (SLICE, _warp(MI(), Adam())),
    "velocity": (SLICE, _warp(MSE(), Root(), method="velocity")),
    "mind, root": (SLICE, _warp(MIND(), Root(), Trust())),
    "mixed, root": (SLICE, _warp(Mixed(lncc=LNCC(3, symmetric=True)), Root(), Trust())),
}
ONE_LEVEL = {"deformable.levels": (1.0,), "deformable.iterations": (2,)}
WHOLE = {
    "linear.metric": "ncc",
    "linear.levels": (1,),
    "linear.iterations": (2,),
    "linear.starts": ("identity",),
    "deformable.levels": (2, 1),
    "deformable.iterations": (2, 1),
    # The interpreter takes as long for a tap as for an image; a second run would be of the same kernels.
    "deformable.sigma_grad": 0.6,
    "deformable.broad_from": 0.0,
}


def registrations() -> dict[str, dict[str, float]]:
    """How far whole registrations are from those on the reference."""
    found = {name: _apart(shape, Recipe(name, "", (), warp), ONE_LEVEL) for name, (shape, warp) in WARPS.items()}
    # Whether the contrasts are alike is found by eleven more iterations of the same kernels.
    alike = replace(RECIPES["default"], across=None, across_planar=None)
    return found | {"default": _apart((1, 24, 26), alike, WHOLE)}


def _images(shape: tuple[int, int, int], **options: Any) -> list[torch.Tensor]:
    """Fixed and moving image of a phantom; of a small volume the middle of one, which has 16 voxels at least."""
    made = wf.phantom.phantom(tuple(n if n == 1 else max(n, 16) for n in shape), **options)
    first = [max(0, 16 - n) // 2 if shape[0] > 1 else 0 for n in shape]
    inner = tuple(slice(a, a + n) for a, n in zip(first, shape, strict=True))
    return [made.fixed[inner].contiguous(), made.moving[inner].contiguous()]


def _apart(shape: tuple[int, int, int], recipe: Recipe, changes: dict[str, Any]) -> dict[str, float]:
    """The largest displacement, and how far apart warps, inverses, affines and costs of the two backends are."""
    images = _images(shape, displacement_vox=1.0)
    options: dict[str, Any] = {"recipe": recipe, "overrides": changes}
    costs: tuple[list[Any], list[Any]] = ([], [])
    ours, theirs = (
        wf.register(*images, **options, backend=backend, progress=events.append)
        for backend, events in zip(("triton", "reference"), costs, strict=True)
    )
    return {
        "moved": float(theirs.warp.displacement.abs().max()),
        "warp": float((ours.warp.displacement - theirs.warp.displacement).abs().max()),
        "inverse": float((ours.inverse_warp.displacement - theirs.inverse_warp.displacement).abs().max()),
        "affine": float(abs(ours.affine.matrix - theirs.affine.matrix).max()),
        "cost": max(abs(a.cost - b.cost) for a, b in zip(*costs, strict=True)),
    }


WIDE = {"sigma_grad": 0.5, "tail": traffic.TAIL}  # at this size buffers hold all planes, whatever the radius
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
    seen: Counter[str] = Counter()
    original = Kernel.launch

    def launch(kernel: Kernel, *arguments: Any, **constants: Any) -> None:
        seen[kernel.name] += 1
        original(kernel, *arguments, **constants)

    turn = _Turns._turn

    def counted(self: _Turns, **options: Any) -> None:
        seen.clear()
        turn(self, **options)

    found, scene = {}, _scene()
    fields = patch.object(buffers, "new_field", lambda shape, device="cpu", dtype=torch.float32: torch.empty(shape))
    with fields, patch.object(Kernel, "launch", launch), patch.object(_Turns, "_turn", counted):
        for name, settings in ITERATIONS.items():
            with Held([side.data for side in scene.sides]) as held:
                solver, warp, carried = _level(scene, settings)
                seen.clear()
                held.most = held.now
                run_level(solver, warp, carried)
            found[name] = {"launches": dict(seen), "bytes": held.most}
    return found


LEVEL = (10, 11, 12)
MATRIX = torch.eye(3, 4, dtype=torch.float64)


def _scene(shape: tuple[int, int, int] = LEVEL, seed: int = 0) -> Scene:
    grid = wf.Grid.from_itk(shape[::-1], (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1, 0, 0, 0, 1, 0, 0, 0, 1))
    images = [wf.Image(data[None], grid) for data in _images(shape, seed=seed)]
    return make_scene(*images, ops=kernels.select("cpu", "triton"))


def _level(scene: Scene, settings: Deformable) -> tuple[LevelSolver, torch.Tensor, Carried]:
    """A solver of one iteration on the Triton backend, its warp and what it carries."""
    ops = kernels.select("cpu", "triton")
    warp = buffers.new_field((3, *LEVEL)).zero_()
    solver = LevelSolver(Level(0, 1.0, 1, True, scene), MATRIX, settings, ops)
    return solver, warp, Carried(state=settings.optimizer.init(warp))


_NARROW = {"sigma_grad": 0.6, "sigma_warp": 0.4, "tail": (0.0, 1.0), "reach": 1.0, "broad_from": 0.0}
_DEFAULT = replace(RECIPES["default"].deformable, metric=LNCC(3, symmetric=True), agreement=0.01, **_NARROW)
_EAGER = Trust(initial=0.5, floor=0.1, increase=8, copy_finest=False)
_PAPER = replace(RECIPES["paper"].deformable, metric=LNCC(3, exact=False))
UNWAITED = {  # settings, whether the level is the finest, and its iterations
    "undone from a copy": (replace(_DEFAULT, damping=_EAGER, step=1.5), False, 3),
    "paper": (_PAPER, True, 2),
}
TOGETHER = {
    "looked at before": (replace(_DEFAULT, damping=_EAGER, step=1.5), True, 3),
    "mi": (replace(_DEFAULT, metric=MI(), agreement=0.0), True, 1),
}
SMALL = (1, 16, 17)


def unwaited() -> dict[str, dict[str, Any]]:
    """A level that waits for its device and one that does not: how they differ, and what the turns of that one do."""
    scene, found = _scene(SMALL), {}
    for name, case in UNWAITED.items():
        theirs, *rest = _run(LevelSolver.run, scene, *case)
        with Turns() as seen:
            ours, *others = _run(run_level, scene, *case)
        found[name] = {
            "moved": float(theirs.abs().max()),
            "apart": float((theirs - ours).abs().max()),
            "same": rest == others,
            "rejected": sum(not accepted for _, accepted in others[1]),
            "turns": len(seen.turns),
            "kinds": sum(turn not in seen.turns[:number] for number, turn in enumerate(seen.turns)),
            "reads": seen.reads,
            "made": sum(n for k, n in enumerate(seen.made) if seen.turns[k] in seen.turns[:k]),
        }
    return found


def together() -> dict[str, dict[str, Any]]:
    """Two pairs that are run together: whether both are as if alone, and with as many launches."""
    pair, found = (_scene(SMALL), _scene(SMALL, seed=1)), {}
    for name, case in TOGETHER.items():
        with Turns() as seen:
            alone = [_run(run_level, scene, *case) for scene in pair]
        with Turns() as shared:
            both = _both(pair, *case)
        found[name] = {
            "alike": all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(both, alone, strict=True)),
            "differ": float((alone[0][0] - alone[1][0]).abs().max()),
            "moved": float(alone[0][0].abs().max()),
            "launches": [max(map(len, each.turns)) for each in (seen, shared)],
            "reads": seen.reads + shared.reads,
        }
    return found


RULES = {
    "undone from a copy": (_DEFAULT, True, True),
    "looked at before": (_DEFAULT, False, True),
    "never undone": (replace(_DEFAULT, damping=Trust(reject=False)), False, False),
    "paper, undone": (replace(_PAPER, damping=Paper(tolerance=0.5)), True, True),
    "flat": (replace(_DEFAULT, convergence=Convergence(tolerance=0.1, window=3)), True, True),
    "rising": (replace(_PAPER, convergence=Convergence(slope=0.1, window=3)), False, False),
    "sgd": (_warp(MSE(), SGD()), False, False),
}


def decisions() -> dict[str, dict[str, float]]:
    """Decisions by the kernels made of them and by the reference, for states and figures by chance."""
    found, generator = {}, torch.Generator().manual_seed(3)
    for name, (settings, copies, undoes) in RULES.items():
        rules = Decisions(settings, 9, 2.0, copies, undoes, every=2, rows=8, parts=1)
        size = len(State._fields) - 1 + rules.recent
        given = {"arrive": 5 + size, "stride": 3, "judge": (10 if undoes else 6) + size}
        differ, values = 0.0, set()
        for part, count in given.items():
            figures = torch.randint(0, 5, (12, count), generator=generator).double()
            figures[:, ::3] += torch.rand(figures[:, ::3].shape, generator=generator) - 0.5
            figures[-1, :2] = torch.nan
            if part != "stride":  # most pairs go on; some stepped, some did not
                state = figures[:, -size:]
                state[:, State._fields.index("ending")] = torch.tensor([0.0] * 10 + [1.0, 5.0])
                state[:, State._fields.index("fresh")] = torch.arange(12).double() % 2
            ours, theirs = (ops.decide(getattr(rules, part), *figures.unbind(-1)) for ops in (triton, reference))
            differ = max(differ, float((ours - theirs).abs().nan_to_num(-1.0).max()))
            assert torch.equal(ours.isnan(), theirs.isnan())
            values |= set(theirs.flatten().tolist())
        found[name] = {"differ": differ, "values": len(values)}
    return found


def _solver(scene: Scene, settings: Deformable, finest: bool, iterations: int, events: list[Any]) -> LevelSolver:
    return LevelSolver(Level(0, 1.0, iterations, finest, scene), MATRIX, settings, triton, events.append)


def _run(run: Callable[..., Any], scene: Scene, *case: Any) -> tuple[Any, ...]:
    """Warp, ending and what was reported of a level."""
    events: list[Any] = []
    warp, ending = run(_solver(scene, *case, events), torch.zeros((3, *SMALL)), Carried())
    return warp, ending.value, [(event.number, event.accepted) for event in events]


def _both(scenes: tuple[Scene, Scene], *case: Any) -> list[tuple[Any, ...]]:
    """The same of two pairs that are run together."""
    events: tuple[list[Any], list[Any]] = ([], [])
    solvers = [_solver(scene, *case, told) for scene, told in zip(scenes, events, strict=True)]
    tasks = [_begun(solver, torch.zeros((3, *SMALL)), Carried()) for solver in solvers]
    found: Any = run_together([task for task in tasks if task is not None])
    return [
        (warp, ending.value, [(event.number, event.accepted) for event in told])
        for (warp, ending), told in zip(found, events, strict=True)
    ]


class Turns:
    """The launches of every turn with their numbers, and how often anybody but the interpreter reads or makes a tensor.

    What is made of Python's numbers is copied to a device, which cannot be recorded; the first turn may.
    """

    READS = ("tolist", "item", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")

    def __init__(self) -> None:
        self.turns: list[list[Any]] = []
        self.within, self.reads = False, 0
        self.made: list[int] = []

    def __enter__(self) -> "Turns":
        others = [(Kernel, "launch"), (_Turns, "_turn"), (torch, "tensor")]
        self.kept: list[tuple[Any, str]] = [*others, *((torch.Tensor, name) for name in self.READS)]
        self.originals = [getattr(owner, name) for owner, name in self.kept]
        launch, turn, make, *reads = self.originals

        def launched(kernel: Kernel, grid: Any, *arguments: Any, **constants: Any) -> None:
            if self.within:
                numbers = [each for each in arguments if not isinstance(each, torch.Tensor)]
                self.turns[-1].append((kernel.name, grid, numbers, constants))
            launch(kernel, grid, *arguments, **constants)

        def turned(turns: _Turns, **options: Any) -> None:
            self.turns.append([])
            self.made.append(0)
            self.within = True
            turn(turns, **options)
            self.within = False

        def made(*arguments: Any, **options: Any) -> Any:
            if self.within and not sys._getframe(1).f_globals["__name__"].startswith("triton."):
                self.made[-1] += 1
            return make(*arguments, **options)

        def read(original: Any) -> Any:
            def counted(tensor: torch.Tensor, *arguments: Any) -> Any:
                caller = sys._getframe(1)
                of_host = caller.f_code.co_name == "matrix_on"  # the matrix is there
                ours = not caller.f_globals["__name__"].startswith("triton.") and not of_host
                self.reads += self.within and ours
                return original(tensor, *arguments)

            return counted

        for (owner, name), new in zip(self.kept, [launched, turned, made, *map(read, reads)], strict=True):
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
    "together": together,
    "decisions": decisions,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy's, of lanes that are masked afterwards
    torch.set_num_threads(1)
    # Neither does what is compiled without debugging look whether whole numbers overflow, which takes half of the time.
    interpreter.interpreter_builder.options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    kernels.add_backend(replace(kernels.BACKENDS["triton"], devices=("cpu",)))
    with patch.object(device, "CHECK_EVERY", 2), patch.object(level, "CHECK_EVERY", 2):  # turns take long
        print(json.dumps({name: TASKS[name]() for name in sys.argv[1:] or TASKS}))

"""A level that does not wait for its device: the same results as with waiting, and no read between the allowed ones."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import warpfactor as wf
from small import WARP_ONLY
from warpfactor import kernels
from warpfactor.errors import InputError
from warpfactor.kernels import reference
from warpfactor.kernels.held import Unwaited
from warpfactor.optim import SGD, Adam, Convergence, Demons, Paper, Tile, Trust
from warpfactor.recipebook.table import RECIPES
from warpfactor.scene.levels import Level
from warpfactor.scene.prepare import make_scene
from warpfactor.stages.device import READ_EVERY, _begun, _Turns, run_level, run_together
from warpfactor.stages.level import Carried, LevelSolver
from warpfactor.stages.stage import Ending
from warpfactor.stages.velocity import VelocityLevel
from warpfactor.terms import MIND, MSE, Custom

SHAPE = (1, 22, 20)
MATRIX = torch.eye(3, 4, dtype=torch.float64)


class Device:
    """The reference as a backend whose host need not wait."""

    on_device = Unwaited(lambda: reference)

    def __getattr__(self, name):
        return getattr(reference, name)


OPS = Device()


def scene_of(seed):
    made = wf.phantom.phantom(SHAPE, displacement_vox=1.5, seed=seed)
    grid = wf.Grid.from_itk(SHAPE[::-1], (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1, 0, 0, 0, 1, 0, 0, 0, 1))
    return make_scene(*(wf.Image(data[None], grid) for data in (made.fixed, made.moving)), ops=OPS)


@pytest.fixture(scope="module")
def scene():
    return scene_of(0)


def waited(solver, warp, carried):
    """A level whose host waits in every iteration."""
    return solver.run(warp, carried)


def solved(run, scene, settings, *, finest=False, iterations=20, stop=lambda: False):
    """Warp, ending, what was reported and what is carried on: the damping, and Adam's moments and number."""
    events, carried, warp = [], Carried(), torch.zeros((3, *SHAPE))
    level = Level(0, 1.0, iterations, finest, scene)
    solver = LevelSolver(level, MATRIX, settings, OPS, events.append, stop)
    carried.state = settings.optimizer.init(warp)
    warp, ending = run(solver, warp, carried)
    return warp, ending, events, (carried.damping, *kept(carried.state))


def kept(moments):
    """Adam's, as numbers."""
    return () if moments is None else (moments.number, moments.first.tolist(), moments.second.tolist())


DEFAULT, PAPER = RECIPES["default"].deformable, RECIPES["paper"].deformable
EAGER = replace(DEFAULT, step=1.5, agreement=0.0, reach=1.0, sigma_grad=1.0)  # steps that raise the cost now and then
LOOK = Trust(initial=0.5, floor=0.1, increase=8, copy_finest=False)
CASES = {
    "default": (DEFAULT, {}, Ending.NOISE),
    "default, finest": (replace(DEFAULT, agreement=0.01), {"finest": True}, Ending.NOISE),
    "undone from a copy": (replace(EAGER, damping=replace(LOOK, copy_finest=True)), {}, Ending.LIMIT),
    "looked at before": (replace(EAGER, damping=LOOK), {"finest": True}, Ending.LIMIT),
    "never undone": (replace(EAGER, damping=replace(LOOK, reject=False)), {}, Ending.LIMIT),
    "stalled": (replace(EAGER, step=9.0, damping=replace(LOOK, increase=1.01)), {"finest": True}, Ending.STALLED),
    "flat": (replace(EAGER, convergence=Convergence(tolerance=0.02, window=4)), {}, Ending.CONVERGED),
    "paper": (PAPER, {"iterations": 9}, Ending.LIMIT),
    "rising": (replace(PAPER, convergence=Convergence(slope=-1e-2, window=3)), {}, Ending.ROSE),
    "paper, undone": (
        replace(PAPER, step=1.5, damping=Paper(initial=1e-6, tolerance=0.0)),
        {"iterations": 14},
        Ending.LIMIT,
    ),
    "sgd": (replace(EAGER, metric=MSE(), optimizer=SGD()), {"iterations": 5}, Ending.LIMIT),
    "demons": (replace(EAGER, metric=MSE(), optimizer=Demons()), {"iterations": 5}, Ending.LIMIT),
    "adam": (replace(EAGER, metric=MSE(), optimizer=Adam()), {"iterations": 11}, Ending.LIMIT),
    "adam, flat": (
        replace(EAGER, metric=MSE(), optimizer=Adam(), convergence=Convergence(tolerance=0.2, window=3)),
        {},
        Ending.CONVERGED,
    ),
    "tile": (replace(EAGER, optimizer=Tile(3)), {"iterations": 5}, Ending.LIMIT),
    "mind": (replace(EAGER, metric=MIND()), {"iterations": 5}, Ending.LIMIT),
}


@pytest.mark.parametrize("case", CASES)
def test_the_device_decides_as_the_host_does(scene, case):
    settings, options, expected = CASES[case]
    theirs, ours = (solved(run, scene, settings, **options) for run in (waited, run_level))
    assert theirs[1] is ours[1] is expected
    assert torch.equal(theirs[0], ours[0])
    assert theirs[3] == ours[3]
    assert [(e.number, e.accepted) for e in theirs[2]] == [(e.number, e.accepted) for e in ours[2]]
    for there, here in zip(theirs[2], ours[2], strict=True):
        assert (there.damping, there.step_vox) == pytest.approx((here.damping, here.step_vox), rel=1e-12)
        assert there.point.cost == pytest.approx(here.point.cost, rel=1e-12)
    if case in ("undone from a copy", "paper, undone", "looked at before"):
        assert any(not event.accepted for event in ours[2])


class Launches(TorchDispatchMode):
    """Operations of every turn, with their numbers; reads by the host are counted."""

    def __init__(self):
        super().__init__()
        self.now, self.turns, self.reads = None, [], 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if self.now is not None:
            numbers = [each for each in arguments if not isinstance(each, (torch.Tensor, list, tuple))]
            self.now.append((str(function), numbers))
            self.reads += function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        return function(*arguments, **(options or {}))


@pytest.fixture
def launches(monkeypatch):
    """What the turns of a level do, and how often the host reads in between."""
    seen = Launches()
    turn, tolist = _Turns._turn, torch.Tensor.tolist

    def recorded(self, *, check):
        walk = self.walk
        places = [each.data_ptr() for each in (walk.warp, walk.other, walk.state, walk.records)]
        seen.now = [("places", places), ("check", check)]
        turn(self, check=check)
        seen.turns.append(seen.now)
        seen.now = None

    def listed(tensor):
        seen.reads += seen.now is not None and tensor.shape[-2:] != MATRIX.shape
        return tolist(tensor)

    monkeypatch.setattr(_Turns, "_turn", recorded)
    monkeypatch.setattr(torch.Tensor, "tolist", listed)
    return seen


@pytest.mark.parametrize("case", ["default", "looked at before", "undone from a copy", "flat", "paper", "mind", "adam"])
def test_a_turn_is_the_same_launches_whatever_comes_out_and_nobody_reads_in_it(scene, launches, case):
    settings, options, _ = CASES[case]
    with launches:
        *_, events, _ = solved(run_level, scene, settings, **options)
    assert launches.reads == 0
    assert len(launches.turns) >= sum(event.step_vox > 0 for event in events) > 3
    kinds = {}  # the two fields are exchanged after every turn, so there are two kinds, and two that compare halves
    for number, turn in enumerate(launches.turns):
        assert turn == kinds.setdefault((turn[1], number % 2), turn)
    (_, even), (_, odd) = (turn[0] for turn in launches.turns[:2])
    assert even[:2] == odd[1::-1]
    assert len(launches.turns[0]) > 20


def test_the_host_reads_every_few_turns(scene, monkeypatch):
    reads = []
    read = _Turns._read
    monkeypatch.setattr(_Turns, "_read", lambda self, turns: reads.append(turns) or read(self, turns))
    solved(run_level, scene, CASES["undone from a copy"][0])
    assert [len(turns) for turns in reads] == [READ_EVERY, READ_EVERY, 20 - 2 * READ_EVERY]


def test_it_can_be_stopped_and_ends_with_the_best_so_far(scene):
    settings, asked = CASES["paper"][0], iter([False, True])
    ours = solved(run_level, scene, settings, iterations=50, stop=lambda: next(asked))
    assert ours[1] is Ending.INTERRUPTED
    assert torch.equal(ours[0], solved(waited, scene, settings, iterations=READ_EVERY)[0])


def test_what_cannot_stay_on_the_device_waits(scene, launches):
    settings = replace(EAGER, metric=Custom(lambda fixed, warped: (fixed - warped).square().mean()))
    theirs, ours = (solved(run, scene, settings, iterations=3) for run in (waited, run_level))
    assert torch.equal(theirs[0], ours[0])
    assert launches.turns == []


def test_images_that_do_not_overlap_are_named(scene):
    far = replace(scene, fixed=replace(scene.fixed, mask=torch.zeros(SHAPE, dtype=torch.uint8)))
    with pytest.raises(InputError, match="do not overlap"):
        solved(run_level, far, DEFAULT)


@pytest.mark.parametrize(
    "case", ["default", "looked at before", "undone from a copy", "rising", "demons", "adam, flat"]
)
def test_pairs_that_run_together_are_as_if_alone(scene, case):
    settings, options, _ = CASES[case]
    scenes, events = [scene, scene_of(1), scene_of(2)], [[], [], []]
    level = Level(0, 1.0, options.get("iterations", 11), options.get("finest", False), scene)
    solvers = [
        LevelSolver(replace(level, scene=each), MATRIX, settings, OPS, told.append)
        for each, told in zip(scenes, events, strict=True)
    ]
    warps = [torch.zeros((3, *SHAPE)) for _ in solvers]
    states = [settings.optimizer.init(warp) for warp in warps]
    tasks = [_begun(s, warp, Carried(state=state)) for s, warp, state in zip(solvers, warps, states, strict=True)]
    assert tasks[0].kind == tasks[1].kind == tasks[2].kind
    together = run_together(tasks)
    for number, (each, told) in enumerate(zip(scenes, events, strict=True)):
        alone = solved(run_level, each, settings, finest=level.finest, iterations=level.iterations)
        assert torch.equal(together[number][0], alone[0])
        assert together[number][1] is alone[1]
        assert told == alone[2]
        carried = tasks[number].carried
        assert (carried.damping, *kept(carried.state)) == alone[3]


def test_an_error_of_one_pair_is_not_that_of_the_others(scene):
    solvers = [LevelSolver(Level(0, 1.0, 5, False, each), MATRIX, EAGER, OPS) for each in (scene, scene_of(1))]
    tasks = [_begun(solver, torch.zeros((3, *SHAPE)), Carried()) for solver in solvers]
    tasks[0].warp += torch.inf
    found = run_together(tasks)
    assert isinstance(found[0], InputError)
    assert torch.equal(found[1][0], solved(run_level, scene_of(1), EAGER, iterations=5)[0])


@pytest.fixture
def device(monkeypatch):
    """The name of a backend whose host need not wait, and how many pairs each level was run with."""
    monkeypatch.setitem(kernels.BACKENDS, "device", kernels.Backend("device", ("cpu",), lambda: OPS))
    sizes, run = [], _Turns.run
    monkeypatch.setattr(_Turns, "run", lambda self: sizes.append(len(self.pairs)) or run(self))
    return "device", sizes


def same(ours, theirs):
    events = [[replace(event, seconds=0.0) for event in each.history[-1].history] for each in (ours, theirs)]
    return torch.equal(ours.warp.displacement, theirs.warp.displacement) and events[0] == events[1]


def test_a_batch_runs_pairs_of_one_size_together(device):
    name, sizes = device
    made = [
        wf.phantom.phantom(shape, displacement_vox=1.5, seed=n) for n, shape in enumerate([SHAPE, SHAPE, (1, 24, 18)])
    ]
    fixed, moving = [each.fixed for each in made], [each.moving for each in made]
    options = {"backend": name, "overrides": WARP_ONLY, "recipe": "brain"}
    found = wf.register_batch(fixed, moving, **options)
    assert sorted(sizes) == [1, 1, 2, 2]
    assert found[0].run.backend == name
    for number, ours in enumerate(found):
        assert same(ours, wf.register(fixed[number], moving[number], **options))


def test_a_pair_that_fails_keeps_nobody_waiting(device):
    made = [wf.phantom.phantom(SHAPE, displacement_vox=1.5, seed=seed) for seed in range(2)]
    errors = {}
    fixed, moving = (
        [each.fixed for each in made] * 2,
        [made[0].moving, torch.ones(SHAPE), made[1].moving, made[1].moving],
    )
    options = {"backend": device[0], "overrides": WARP_ONLY}
    found = wf.register_batch(fixed, moving, on_error=errors.__setitem__, together=3, **options)
    assert (len(found), list(errors)) == (3, [1])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "symmetric", "terms": [wf.Weighted(wf.Bending(), 0.1)]},
        {"method": "greedy", "terms": [wf.Weighted(wf.Bending(), 0.1), wf.VolumeChange()]},
        {"method": "velocity"},
    ],
    ids=["symmetric and bending", "three terms", "velocity"],
)
def test_both_images_that_move_and_sums_of_terms_do_not_wait_either(device, launches, options):
    name, sizes = device
    made = wf.phantom.phantom(SHAPE, displacement_vox=1.5)
    given = {"recipe": "brain", "terms": options.get("terms", ())}
    given["overrides"] = {**WARP_ONLY, "deformable.method": options["method"]}
    theirs = wf.register(made.fixed, made.moving, **given, backend="reference")
    with launches:
        ours = wf.register(made.fixed, made.moving, **given, backend=name)
    assert sizes == [1, 1]
    assert launches.turns
    assert launches.reads == 0
    assert torch.equal(ours.warp.displacement, theirs.warp.displacement)
    pairs = zip(ours.history[-1].history, theirs.history[-1].history, strict=True)
    for here, there in pairs:
        assert here.cost == pytest.approx(there.cost, rel=1e-12)
        assert [name for name, _ in here.parts] == [name for name, _ in there.parts]
        assert [cost for _, cost in here.parts] == pytest.approx([cost for _, cost in there.parts], rel=1e-12)


def test_a_flow_is_doubled_as_often_as_the_device_finds_and_work_is_made_anew_for_more(device, monkeypatch):
    """In a long run the velocity grows; a flow that is doubled too rarely would differ."""
    foreseen = []
    foresee = VelocityLevel.foresee
    monkeypatch.setattr(VelocityLevel, "foresee", lambda *given: foreseen.append(foresee(*given)) or foreseen[-1])
    made = wf.phantom.phantom(SHAPE, displacement_vox=4.0)
    overrides = {**WARP_ONLY, "deformable.method": "velocity", "deformable.iterations": (30, 3)}
    given = {"recipe": "brain", "overrides": overrides}
    ours, theirs = (wf.register(made.fixed, made.moving, **given, backend=each) for each in (device[0], "reference"))
    assert torch.equal(ours.velocity.field, theirs.velocity.field)
    assert float(theirs.velocity.field.abs().max()) > 1
    assert len(set(foreseen)) > 1


def test_two_images_that_face_each_other_wait(device):
    made = wf.phantom.phantom(SHAPE, displacement_vox=1.5)
    overrides = {**WARP_ONLY, "deformable.method": "symmetric"}
    wf.register(made.fixed, made.moving, recipe="brain", overrides=overrides, backend=device[0])
    assert device[1] == []

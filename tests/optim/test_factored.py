"""FactoredLM, the paper's optimizer as a torch optimizer: against our own stage and Adam, and in every convention."""

import copy
import io
import itertools
import pickle

import pytest
import torch
from torch.nn import functional

import warpfactor as wf
from held import Held
from scenes import scene_of, warp
from warpfactor.errors import InputError
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels import reference
from warpfactor.optim import SGD, FactoredLM, Paper, Pointwise, Root, Tile, Trust, parts
from warpfactor.optim.conventions import layout_of
from warpfactor.stages.settings import Deformable

SHAPE = (16, 18, 17)
STEPS = 6
ROBUST = {"form": Root(), "damping": Paper(initial=16, relative=True)}


@pytest.fixture(scope="module")
def scene():
    made = wf.phantom.phantom(SHAPE, displacement_vox=1.0)
    return scene_of(wf.Image.from_array(made.fixed), wf.Image.from_array(made.moving))


def of_stage(scene, u, layout):
    """A closure with the loss and the gradient of our own stage, for a parameter of this layout."""
    cost = wf.MSE().prepare(scene, reference)
    matrix = VoxelMap(scene.fixed.grid, None, torch.eye(4).numpy()).matrix(scene.moving.grid)
    scale = torch.tensor(layout.voxels).reshape(3, 1, 1, 1)

    def closure():
        displacement = layout.displacements(u.detach())[0].contiguous()
        gradient = torch.empty_like(displacement)
        point = cost.linearize(displacement, matrix, gradient)
        u.grad = torch.empty_like(u)
        layout.write((gradient * scale * scale / gradient[0].numel())[None], u.grad)  # by u instead of by voxels
        return point.cost

    return closure


FORMS = [Pointwise(), Tile(3), Root()]
RULES = [Paper(), Paper(initial=2.0, relative=True, cap=2.5, decrease=0.8), Paper(tolerance=0.0)]


@pytest.mark.parametrize(
    ("form", "rule", "convention"),
    [(form, rule, ("grid", "voxels")[(i + j) % 2]) for i, form in enumerate(FORMS) for j, rule in enumerate(RULES)],
)
def test_it_is_our_own_stage_iteration_by_iteration(scene, form, rule, convention):
    settings = Deformable(
        metric=wf.MSE(),
        optimizer=form,
        damping=rule,
        levels=(1,),
        iterations=(STEPS,),
        step=0.4,
        sigma_grad=0.8,
        sigma_warp=0.3,
        smoothing="full",
        units="normalized" if convention == "grid" else "spacing",
    )
    expected = warp(scene, settings, ops=reference)
    u = torch.zeros((1, *SHAPE, 3) if convention == "grid" else (1, 3, *SHAPE), requires_grad=True)
    layout = layout_of(u.shape, convention)
    optimizer = FactoredLM([u], 0.4, form=form, damping=rule, sigma_grad=0.8, sigma_warp=0.3, convention=convention)
    closure = of_stage(scene, u, layout)
    taken = [(optimizer.step(closure), optimizer.state[u]["damping"]) for _ in range(STEPS)]
    accepted = [(event.cost, event.damping) for event in expected.records if event.accepted]
    assert torch.tensor(taken).allclose(torch.tensor(accepted[:STEPS]), rtol=1e-5)
    if rule.tolerance is None:
        found = layout.displacements(u.detach())[0]
        assert torch.allclose(found, expected.displacement, atol=1e-4)


def test_rejections_are_those_of_our_own_stage(scene):
    """With steps so long that most are undone."""
    settings = Deformable(
        metric=wf.MSE(), optimizer=Root(), damping=Paper(tolerance=0.0, increase=4.0), levels=(1,), iterations=(8,),
        step=8.0, smoothing="full",
    )  # fmt: skip
    expected = warp(scene, settings, ops=reference).records
    u = torch.zeros((1, 3, *SHAPE), requires_grad=True)
    calls = []
    inner = of_stage(scene, u, layout_of(u.shape, "voxels"))

    def closure():
        calls.append(inner())
        return calls[-1]

    options = {"sigma_grad": settings.sigma_grad, "sigma_warp": settings.sigma_warp, "convention": "voxels"}
    optimizer = FactoredLM([u], 8.0, form=Root(), damping=settings.damping, **options)
    for _ in range(8):
        optimizer.step(closure)
    assert not all(event.accepted for event in expected)
    assert calls == pytest.approx([event.cost for event in expected][: len(calls)], rel=1e-5)


SHAPES = {"grid": lambda n, s: (*n, *s, len(s)), "grid_channels_first": lambda n, s: (*n, len(s), *s)}
SHAPES["voxels"] = SHAPES["grid_channels_first"]


@pytest.mark.parametrize("convention", SHAPES)
@pytest.mark.parametrize("batch", [(2,), ()])
@pytest.mark.parametrize("space", [(7, 9, 8), (9, 8)])
@pytest.mark.parametrize("align_corners", [True, False])
def test_conventions_mean_what_grid_sample_does(convention, batch, space, align_corners, generator):
    """An image sampled by PyTorch through a parameter is the image sampled by us through its displacement."""
    shape = SHAPES[convention](batch, space)
    layout = layout_of(shape, convention, align_corners=align_corners)
    depth = space if len(space) == 3 else (1, *space)
    wanted = torch.randn((*batch, 3, *depth), generator=generator)
    wanted = wanted if batch else wanted[None]
    wanted[:, :1] *= len(space) == 3
    u = torch.zeros(shape)
    layout.write(wanted, u)
    assert torch.allclose(layout.displacements(u), wanted, atol=1e-5)
    if convention == "voxels":
        assert torch.equal(u if batch else u[None], wanted[:, -len(space) :].reshape(-1, *shape[-len(space) - 1 :]))
        return
    image = torch.rand(space, generator=generator)
    offsets = u if batch else u[None]
    offsets = offsets if convention == "grid" else offsets.movedim(1, -1)
    size = (len(offsets), 1, *space)
    eye = torch.eye(len(space), len(space) + 1).expand(len(offsets), -1, -1)
    identity = functional.affine_grid(eye, size, align_corners=align_corners)
    images = image.expand(size)
    found = functional.grid_sample(images, identity + offsets, align_corners=align_corners, padding_mode="border")
    for one, displacement in zip(found, wanted, strict=True):
        points = torch.eye(3, 4, dtype=torch.float64)
        ours = reference.sample(image.reshape(depth), displacement, points, outside=torch.nan)
        inside = ~ours.isnan()
        assert inside.float().mean() > 0.5
        assert torch.allclose(one.reshape(depth)[inside], ours[inside], atol=1e-5)


def test_gradients_are_by_voxels(generator):
    layout = layout_of((1, 5, 6, 7, 3), "grid")
    u = torch.randn((1, 5, 6, 7, 3), generator=generator, dtype=torch.float64, requires_grad=True)
    weights = torch.randn((1, 3, 5, 6, 7), generator=generator, dtype=torch.float64)
    (weights * layout.displacements(u)).sum().backward()
    assert torch.allclose(layout.gradients(u.grad), weights)


def local_correlation(warped, fixed, window=5):
    def mean(image):
        return functional.avg_pool2d(image, window, 1, window // 2, count_include_pad=False)

    means = mean(warped), mean(fixed)
    covariance = mean(warped * fixed) - means[0] * means[1]
    variances = [mean(i * i) - m * m for i, m in zip((warped, fixed), means, strict=True)]
    return (1 - covariance**2 / (variances[0] * variances[1] + 1e-5))[variances[1] > 1e-4].mean()


def registered(made, make, steps, loss=local_correlation):
    """The displacement that plain PyTorch finds with an optimizer, and the losses on the way."""
    shape = made.fixed.shape[1:]
    u = torch.zeros(1, *shape, 2, requires_grad=True)
    optimizer = make(u)
    identity = functional.affine_grid(torch.eye(2, 3)[None], (1, 1, *shape), align_corners=True)

    def closure():
        optimizer.zero_grad()
        warped = functional.grid_sample(made.moving[None], identity + u, align_corners=True, padding_mode="border")
        value = loss(warped, made.fixed[None])
        value.backward()
        return value

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return layout_of(u.shape, "grid").displacements(u.detach())[0], losses


def test_on_the_phantom_it_is_nearer_to_the_truth_than_adam():
    """Adam lowers the loss of plain PyTorch too, by folding the image; the factored steps do not fold it."""
    made = wf.phantom.phantom((1, 60, 64), displacement_vox=2.0, seed=3)
    mask = made.mask > 0

    def error(u):
        return float((u - made.displacement).norm(dim=0)[mask].mean())

    ours, losses = registered(made, lambda u: FactoredLM([u], 0.5, sigma_grad=1.0, sigma_warp=0.5, **ROBUST), 40)
    adams = [registered(made, lambda u, lr=lr: torch.optim.Adam([u], lr=lr), 40)[0] for lr in (0.002, 0.01, 0.05)]
    assert losses[-1] < 0.9 * losses[0]
    assert error(ours) < 0.6 * error(torch.zeros_like(ours))
    assert all(error(ours) < 0.8 * error(adam) for adam in adams)
    assert float(reference.jacobian_determinant(ours).min()) > 0


def element_state(optimizer):
    tensors = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return sum(tensor.numel() for tensor in tensors if tensor.ndim)


def test_it_keeps_as_much_as_sgd(generator):
    def after_a_step(make):
        u = torch.zeros(1, 6, 7, 8, 3, requires_grad=True)
        u.grad = torch.randn(u.shape, generator=generator)
        optimizer = make([u])
        optimizer.step(lambda: torch.tensor(1.0))
        return element_state(optimizer) / u.numel()

    assert after_a_step(lambda p: torch.optim.SGD(p, lr=0.1)) == 0
    assert after_a_step(FactoredLM) == 0
    assert after_a_step(lambda p: FactoredLM(p, damping=Paper(tolerance=1.0))) == 1
    assert after_a_step(lambda p: torch.optim.Adam(p)) == 2


@pytest.mark.parametrize(("form", "convention"), [(Pointwise(), "grid"), (Tile(3), "voxels")])
def test_a_step_takes_little_more_memory_than_one_of_sgd(form, convention, generator, monkeypatch):
    """SGD takes none; a copy of the gradient alone would be 12 bytes a voxel."""
    monkeypatch.setattr(parts, "PART", 360)
    monkeypatch.setattr(parts, "AT_ONCE", 360)
    shape, peaks = ((2, 200, 18, 20, 3) if convention == "grid" else (2, 3, 200, 18, 20)), []
    smooth = {"sigma_grad": 1.0, "sigma_warp": 0.5}
    makes = (
        lambda p: torch.optim.SGD(p, 0.1),
        lambda p: FactoredLM(p, form=form, convention=convention, **smooth),
        torch.optim.Adam,
    )
    for make in makes:
        u = torch.zeros(shape, requires_grad=True)
        u.grad = torch.randn(shape, generator=generator)
        optimizer = make([u])
        with Held([u, u.grad]) as held:
            optimizer.step(lambda: torch.tensor(1.0))
        peaks.append(held.most / (u.numel() // 3))
    assert peaks[0] < 1e-3
    assert peaks[1] < 6
    assert peaks[2] >= 36


BOTH = {"sigma_grad": 0.8, "sigma_warp": 0.5}
IN_PARTS = [
    ((9, 6, 5), Pointwise(), "grid", BOTH),
    ((13, 2, 7), Tile(4), "voxels", BOTH),
    ((2, 11, 6), Tile(7), "grid_channels_first", {}),
    ((11, 6), Root(), "grid", BOTH),
    ((11, 3), Tile(3), "voxels", {"sigma_grad": 0.5}),
    ((2, 9), Pointwise(), "grid", {}),
    ((9, 5, 4), Tile(1), "voxels", {"update": "add", "sigma_warp": 1.0}),
]


@pytest.mark.parametrize(("space", "form", "convention", "smooth"), IN_PARTS)
def test_a_step_in_parts_is_the_whole_step(space, form, convention, smooth, generator, monkeypatch):
    shape = SHAPES[convention]((2,), space)
    start, gradient = (torch.randn(shape, generator=generator) for _ in range(2))
    start *= 1.0 if convention == "voxels" else 0.1

    def stepped(size):
        monkeypatch.setattr(parts, "PART", size)
        monkeypatch.setattr(parts, "AT_ONCE", size)
        u = start.clone().requires_grad_()
        optimizer = FactoredLM([u], 2.0, form=form, convention=convention, damping=Trust(), **smooth)
        for scale in (1.0, -0.5):
            u.grad = scale * gradient
            optimizer.step(loss=1e3 * start.numel())
        return u.detach(), optimizer.state[u]["predicted"], optimizer.state[u]["unit"]

    whole, *numbers = stepped(1 << 18)
    for size in (1, 2 * space[-1]):
        found, *figures = stepped(size)
        assert figures == pytest.approx(numbers, rel=1e-6)
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-6)  # the unit of the damping is a sum of parts
    assert (whole - start).abs().max() > 0.05


def test_with_the_same_damping_parts_make_up_the_step_bit_for_bit(generator, monkeypatch):
    start, gradient = (torch.randn((2, 3, 13, 6, 5), generator=generator) for _ in range(2))
    found = []
    for size in (1 << 18, 60, 1):
        monkeypatch.setattr(parts, "PART", size)
        monkeypatch.setattr(parts, "AT_ONCE", size)
        u = start.clone().requires_grad_()
        u.grad = gradient.clone()
        FactoredLM([u], 2.0, convention="voxels", sigma_grad=1.0, sigma_warp=0.5).step(loss=1.0)
        assert torch.equal(u.grad, gradient)
        found.append(u.detach())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def quadratic(u, target, optimizer, scale=1.0, reduce=torch.mean):
    def closure():
        optimizer.zero_grad()
        loss = scale * reduce((u - target).square())
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("form", [Pointwise(), Root()])
def test_a_relative_damping_does_not_see_the_scale_of_the_loss(form, generator):
    target = torch.randn((1, 6, 7, 2), generator=generator, dtype=torch.float64)
    found = []
    for scale, reduction in ((1.0, "mean"), (1e4, "mean"), (1.0, "sum")):
        u = torch.zeros_like(target, requires_grad=True)
        rule = Paper(initial=0.5, relative=True)
        optimizer = FactoredLM([u], form=form, damping=rule, reduction=reduction)
        # A mean over voxels: the two components are summed.
        reduce = (lambda t: t.sum(-1).mean()) if reduction == "mean" else torch.sum
        for _ in range(5):
            optimizer.step(quadratic(u, target, optimizer, scale, reduce))
        found.append(u.detach())
    assert torch.allclose(found[0], found[1])
    assert torch.allclose(found[0], found[2])


def test_lowest_is_taken_off_the_loss(generator):
    target = torch.randn((1, 6, 7, 2), generator=generator)
    found = []
    for shift in (0.0, -1.0):
        u = torch.zeros_like(target, requires_grad=True)
        optimizer = FactoredLM([u], lowest=shift)
        optimizer.step(quadratic(u, target, optimizer, reduce=lambda t, shift=shift: t.mean() + shift))
        found.append(u.detach())
    assert torch.allclose(*found, rtol=1e-4)


def test_images_of_a_batch_have_their_own_longest_step(generator):
    target = torch.randn((2, 6, 7, 2), generator=generator)
    target[1] *= 20
    options = {"form": Pointwise(), "damping": Paper(initial=1e-4), "sigma_grad": 0.5}
    together = torch.zeros_like(target, requires_grad=True)
    apart = [torch.zeros(1, 6, 7, 2, requires_grad=True) for _ in range(2)]
    together.grad = 0.01 * target
    FactoredLM([together], **options).step(loss=0.5)
    for one, part in zip(apart, target, strict=True):
        one.grad = 0.02 * part[None]  # of a mean over half as many voxels
        FactoredLM([one], **options).step(loss=0.5)
    assert torch.allclose(together, torch.cat(apart))


def test_a_loss_can_be_maximised(generator):
    target = torch.randn((1, 6, 7, 2), generator=generator)
    found, losses = [], []
    for maximize in (False, True):
        u = torch.zeros_like(target, requires_grad=True)
        optimizer = FactoredLM([u], lowest=0.5 * maximize, maximize=maximize, damping=Paper(tolerance=0.0))
        sign = -1 if maximize else 1
        reduce = lambda t, sign=sign, maximize=maximize: sign * t.mean() + 0.5 * maximize  # noqa: E731
        losses.append([optimizer.step(quadratic(u, target, optimizer, reduce=reduce)).item() for _ in range(4)])
        found.append(u.detach())
    assert torch.allclose(*found, rtol=1e-4)
    assert losses[1][-1] > losses[1][0]
    with pytest.raises(InputError, match=r"is above `lowest`, 0\.5; give the loss of"):
        optimizer.step(loss=0.6)


def test_it_does_what_users_of_optimizers_expect(generator):
    """A rate as a tensor or of 0, schedulers, hooks, copies, mixed precision around it."""
    target, seen = 0.3 * torch.randn((1, 6, 7, 2), generator=generator), []
    u = torch.zeros_like(target, requires_grad=True)
    optimizer = FactoredLM([u], lr=torch.tensor(0.4), **ROBUST)
    optimizer.register_step_post_hook(lambda *_: seen.append(u.detach().clone()))
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 0))]
    schedules.append(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4))
    twin = pickle.loads(pickle.dumps(optimizer))
    for _ in range(4):
        optimizer.step(quadratic(u, target, optimizer))
        for schedule in schedules:
            schedule.step()
    assert not seen[0].any()
    assert seen[1].any()
    assert copy.deepcopy(optimizer).param_groups[0]["damping"] == twin.param_groups[0]["damping"] == ROBUST["damping"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = u.detach().clone()
        optimizer.param_groups[0]["lr"] = 0.4
        optimizer.step(quadratic(u, target, optimizer))
    assert u.dtype == torch.float32
    assert not torch.equal(u, before)


def test_add_adds_the_step(generator):
    start = torch.randn((1, 2, 6, 7), generator=generator)
    gradient = torch.randn(start.shape, generator=generator)
    found = {}
    for update in ("add", "compose"):
        u = start.clone().requires_grad_(True)
        u.grad = gradient.clone()
        FactoredLM([u], form=Root(), convention="voxels", update=update).step(loss=1.0)
        found[update] = u.detach() - start
    longest = found["add"].norm(dim=1).max()
    assert 0.37 < float(longest) <= 0.375
    assert not torch.allclose(found["add"], found["compose"], atol=1e-2)


def test_the_state_survives_saving_as_plain_data(generator):
    target = 3 * torch.randn((1, 6, 7, 2), generator=generator)
    options = {"damping": Paper(tolerance=0.5, initial=0.02, cap=5.0), "form": Tile(3)}

    def fresh():
        u = torch.zeros_like(target, requires_grad=True)
        return u, FactoredLM([u], 0.5, **options)

    u, optimizer = fresh()
    for _ in range(3):
        optimizer.step(quadratic(u, target, optimizer))
    stream = io.BytesIO()
    torch.save({"u": u.detach(), "optimizer": optimizer.state_dict()}, stream)
    stream.seek(0)
    saved = torch.load(stream, weights_only=True)
    v, other = fresh()
    v.data.copy_(saved["u"])
    other.load_state_dict(saved["optimizer"])
    assert other.param_groups[0]["damping"] == options["damping"]
    for _ in range(3):
        optimizer.step(quadratic(u, target, optimizer))
        other.step(quadratic(v, target, other))
    assert torch.equal(u, v)
    assert optimizer.state[u]["damping"] == other.state[v]["damping"]


def test_groups_have_settings_of_their_own_and_schedulers_reach_them(generator):
    a, b = (torch.zeros(1, 6, 7, 2, requires_grad=True) for _ in range(2))
    gradient = torch.randn(a.shape, generator=generator)
    far = {"params": [b], "lr": 1.0, "form": Root(), "damping": Paper(initial=1e-6)}
    optimizer = FactoredLM([{"params": [a], "form": Root(), "damping": Paper(initial=1e-6)}, far], lr=0.25)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    a.grad, b.grad = gradient.clone(), gradient.clone()
    optimizer.step(loss=1.0)
    assert torch.allclose(b, 4 * a, atol=1e-6)
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.5]


def test_a_parameter_without_a_gradient_stays(generator):
    moved, stays = (torch.zeros(1, 6, 7, 2, requires_grad=True) for _ in range(2))
    moved.grad = torch.randn(moved.shape, generator=generator)
    FactoredLM([moved, stays]).step(loss=1.0)
    assert moved.any()
    assert not stays.any()


def test_trust_undoes_steps_too(generator):
    target = 0.2 * torch.randn((1, 8, 9, 2), generator=generator)
    u = torch.zeros_like(target, requires_grad=True)
    optimizer = FactoredLM([u], 6.0, form=Root(), damping=Trust(initial=0.1, floor=0.1))
    losses = [optimizer.step(quadratic(u, target, optimizer)).item() for _ in range(12)]
    assert all(b <= a for a, b in itertools.pairwise(losses))
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_type_of_the_parameter_is_kept(dtype, generator):
    u = torch.zeros(1, 6, 7, 2, dtype=dtype, requires_grad=True)
    u.grad = torch.randn(u.shape, generator=generator).to(dtype)
    FactoredLM([u], sigma_grad=1.0).step(loss=1.0)
    assert u.dtype == dtype
    assert bool(u.isfinite().all())


def parameter(*shape, **options):
    return torch.zeros(*shape, requires_grad=True, **options)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((5, 6), {}, r"shape \(5, 6\) holds no displacements by the convention 'grid', which needs \(N, D, H, W, 3\)"),
        ((1, 3, 5, 6, 7), {}, "choose another of grid, grid_channels_first, voxels"),
        ((1, 5, 6, 7, 3), {"convention": "voxels"}, r"needs \(N, 3, D, H, W\) or \(N, 2, H, W\)"),
        ((1, 5, 6, 2), {"convention": "ants"}, "Unknown convention 'ants'; use one of grid"),
        ((1, 1, 6, 7, 3), {}, r"over \(1, 6, 7\) voxels: every axis needs at least 2"),
        ((1, 5, 6, 2), {"lr": "fast"}, "lr=fast must be a positive number of voxels"),
        ((1, 5, 6, 2), {"lr": 0.0}, "lr=0.0 must be a positive number of voxels"),
        ((1, 5, 6, 2), {"sigma_grad": -1.0}, "sigma_grad=-1.0 must be 0 or a positive number"),
        ((1, 5, 6, 2), {"update": "multiply"}, "Unknown update 'multiply'; use one of compose, add"),
        ((1, 5, 6, 2), {"reduction": "none"}, "Unknown reduction 'none'; use one of mean, sum"),
        ((1, 5, 6, 2), {"form": SGD()}, r"must be one of Pointwise\(\), Tile\(\) and Root\(\)"),
        ((1, 5, 6, 2), {"damping": 0.01}, r"The damping 0.01 must be a rule: Paper\(\) or Trust\(\)"),
    ],
)
def test_bad_settings_are_named(shape, options, message):
    with pytest.raises(InputError, match=message):
        FactoredLM([parameter(*shape)], **options)


def test_half_precision_is_refused():
    with pytest.raises(InputError, match=r"type torch\.float16 cannot be optimised; use float32 or float64"):
        FactoredLM([parameter(1, 5, 6, 2, dtype=torch.float16)])


def test_bad_calls_are_named():
    u = parameter(1, 5, 6, 2)
    optimizer = FactoredLM([u])
    with pytest.raises(InputError, match="not the state of a FactoredLM"):
        optimizer.load_state_dict(torch.optim.Adam([u]).state_dict())
    with pytest.raises(InputError, match=r"needs the loss: call step\(closure\), or step\(loss=loss\)"):
        optimizer.step()
    with pytest.raises(InputError, match="No parameter has a gradient"):
        optimizer.step(loss=1.0)
    u.grad = torch.ones_like(u)
    with pytest.raises(InputError, match="The closure returned None"):
        optimizer.step(lambda: None)
    with pytest.raises(InputError, match=r"The loss -0.5 is below `lowest`, 0; give the loss of a perfect match"):
        optimizer.step(loss=-0.5)
    with pytest.raises(InputError, match="The loss is nan"):
        optimizer.step(loss=torch.nan)
    u.grad[0, 1, 1, 1] = torch.nan
    with pytest.raises(InputError, match="The gradient has NaN or infinite values"):
        optimizer.step(loss=0.5)
    assert not u.any()

"""The paper's optimizer as a `torch.optim.Optimizer`, for displacements in anybody's PyTorch code.

It is made of the same steps and damping rules as our own stages, on the plain PyTorch kernels: it runs on any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.optim.conventions import layout_of
from warpfactor.optim.damping import DAMPINGS, Damping, DampingState, Paper
from warpfactor.optim.parts import StepInParts
from warpfactor.optim.steps import STEPS, Pointwise, Root, Step, Tile

FORMS = (Pointwise, Tile, Root)
REDUCTIONS = ("mean", "sum")
UPDATES = ("compose", "add")
FLOATS = (torch.float32, torch.float64)
SETTINGS: dict[str, Mapping[str, Any]] = {"form": STEPS, "damping": DAMPINGS}  # settings that are objects, by name
NUMBERS = tuple(field.name for field in fields(DampingState))

Group = Mapping[str, Any]


class FactoredLM(torch.optim.Optimizer):
    """Factored Levenberg-Marquardt on displacements: one 3x3 system per voxel, solved in closed form.

    The step at a voxel is -r g / (|g|² + λ), with g the gradient there and r the loss above its lowest value (paper eq.
    5), or that of another `form`. It is shortened so that no voxel moves further than `lr`, and composed with the
    displacement (eq. 2). The `damping` rule changes λ after every step, and may undo the step.

    Between two steps it keeps a few numbers per parameter and no field, like `torch.optim.SGD` without momentum; with a
    rule that undoes steps, one copy of the parameter. Every image of a batch has its own longest step; λ is one
    number per parameter. All settings may differ between parameter groups.

    Args:
        params: tensors of displacements, or groups of them.
        lr: longest step in voxels (of the longest axis, where lengths are normalised).
        form: `Pointwise()`; `Tile(tile_size)`, with a Hessian pooled over a window (eq. 6); or `Root()`, which is
            -g / (|g| + √λ) and does not depend on r.
        damping: `Paper()` with the rule of the paper (eq. 7), its cap and, with a `tolerance`, rejection (eq. 12); or
            `Trust()`. λ is absolute, or relative to the gradient of the first step; `Paper.relative` says which.
        convention: "grid": (N, D, H, W, 3) or (N, H, W, 2), normalised, x first, as `grid_sample` takes them.
            "grid_channels_first": the same, but (N, 3, D, H, W) or (N, 2, H, W). "voxels": (N, 3, D, H, W) or
            (N, 2, H, W), in voxels, z first. N may be left out.
        align_corners: that of your `grid_sample`.
        update: "compose" makes x -> s v(x) + u(x + s v(x)); "add" makes u + s v, for instance for velocities.
        sigma_grad, sigma_warp: SD in voxels of the Gaussians on the gradient and, after each step, on the displacement.
        reduction: whether the loss is a "mean" or a "sum" over voxels.
        lowest: the loss of a perfect match, for instance -1 of a negative correlation.
        maximize: whether the loss is to be made as large as possible; `lowest` is then its largest value.

    >>> import torch, warpfactor as wf
    >>> fixed, moving = torch.rand(2, 1, 1, 12, 14)
    >>> u = torch.zeros(1, 12, 14, 2, requires_grad=True)
    >>> identity = torch.nn.functional.affine_grid(torch.eye(2, 3)[None], fixed.shape, align_corners=True)
    >>> optimizer = wf.optim.FactoredLM([u], sigma_grad=1.0)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     warped = torch.nn.functional.grid_sample(moving, identity + u, align_corners=True)
    ...     loss = (warped - fixed).square().mean()
    ...     loss.backward()
    ...     return loss
    >>> losses = [optimizer.step(closure).item() for _ in range(5)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(  # noqa: PLR0913 - an optimizer takes all its settings here
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.375,
        *,
        form: Step = Pointwise(),  # noqa: B008 - frozen
        damping: Damping = Paper(),  # noqa: B008
        convention: str = "grid",
        align_corners: bool = True,
        update: str = "compose",
        sigma_grad: float = 0.0,
        sigma_warp: float = 0.0,
        reduction: str = "mean",
        lowest: float = 0.0,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "form": form,
            "damping": damping,
            "convention": convention,
            "align_corners": align_corners,
            "update": update,
            "sigma_grad": sigma_grad,
            "sigma_warp": sigma_warp,
            "reduction": reduction,
            "lowest": lowest,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own; InputError if a setting or a shape does not fit."""
        super().add_param_group(param_group)
        try:
            _check(self.param_groups[-1])
        except InputError:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """State and settings as plain data, so that `torch.load` needs none of our classes."""
        packed = super().state_dict()
        for group in packed["param_groups"]:
            group.update({name: asdict(group[name]) for name in SETTINGS})
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; InputError if that is the state of another optimizer."""
        if not all(name in group for group in state_dict["param_groups"] for name in self.defaults):
            raise InputError("This is not the state of a FactoredLM; its groups lack settings of it.")
        groups = [{**group, **_unpacked(group)} for group in state_dict["param_groups"]]
        super().load_state_dict({**state_dict, "param_groups": groups})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, loss: Tensor | float | None = None) -> Any:
        """Take one step; returns the loss before it.

        Args:
            closure: clears the gradients, computes the loss, calls `backward` and returns the loss. It is called a
                second time if the step that led here is undone.
            loss: instead of a closure, the loss of which `backward` was called; then no step can be undone.
        """
        if (closure is None) == (loss is None):
            raise InputError("FactoredLM needs the loss: call step(closure), or step(loss=loss) after loss.backward().")
        found: Any = loss if closure is None else _evaluate(closure)
        if self._judge(found, undo=closure is not None) and closure is not None:
            found = _evaluate(closure)
        value = _number(found)
        if not math.isfinite(value):
            raise InputError(f"The loss is {value}; check the images and the loss for divisions by zero.")
        for parameter, group in self._moved():
            _step(parameter, self.state[parameter], group, value)
        return found

    def _moved(self) -> list[tuple[Tensor, Group]]:
        """The parameters that have a gradient, with their settings."""
        found: list[tuple[Tensor, Group]] = [
            (each, group) for group in self.param_groups for each in group["params"] if each.grad is not None
        ]
        if not found:
            raise InputError("No parameter has a gradient; call loss.backward(), in the closure if there is one.")
        return found

    def _judge(self, found: Any, *, undo: bool) -> bool:
        """Judge the step that led to this loss; if one is rejected, all that have a copy go back. Whether they did."""
        verdicts = []
        for parameter, group in self._moved():
            before = _damping_state(self.state[parameter], group["damping"])
            back = undo and "previous" in self.state[parameter]
            cost = _sign(group) * _number(found)
            verdicts.append((parameter, before, *group["damping"].judge(before, cost, undo=back)))
        rejected = not all(kept for *_, kept, _ in verdicts)
        for parameter, before, kept, after in verdicts:
            state = self.state[parameter]
            back = rejected and "previous" in state
            state.update(asdict(before if back and kept else after))
            if back:
                parameter.copy_(state["previous"])
        return rejected


def _evaluate(closure: Callable[[], Any]) -> Any:
    with torch.enable_grad():
        return closure()


def _number(loss: Any) -> float:
    if loss is None:
        raise InputError("The closure returned None; it must return the loss.")
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _damping_state(state: Mapping[str, Any], rule: Damping) -> DampingState:
    """What the rule remembers of a parameter; at first its initial damping."""
    if "damping" not in state:
        return DampingState(damping=rule.clamp(rule.initial))
    return DampingState(**{name: state[name] for name in NUMBERS})


def _step(parameter: Tensor, state: dict[str, Any], group: Group, loss: float) -> None:
    """Change a parameter by one step, and its state."""
    assert parameter.grad is not None
    layout = layout_of(parameter.shape, group["convention"], align_corners=group["align_corners"])
    images = len(parameter) if layout.batched else 1
    count = parameter.numel() // parameter.shape[layout.components]
    voxels = 1 if group["reduction"] == "mean" else count  # of which the loss is the sum
    factor = _sign(group) * count / voxels  # as of the sum over all of them; the residual is a mean
    given: dict[str, Any] = {"factor": factor, "sigma": group["sigma_grad"]}
    given |= {"residual": _residual(loss, group) / voxels, "damping": 0.0}
    steps = [StepInParts(group["form"], layout, parameter.grad, image, **given) for image in range(images)]
    if "unit" not in state:
        state["unit"] = _unit(steps) if group["damping"].relative else 1.0
    steps = [replace(step, damping=state["damping"] * state["unit"]) for step in steps]
    found = [step.measured() for step in steps]
    if not all(math.isfinite(each.longest + each.decrease) for each in found):
        raise InputError("The gradient has NaN or infinite values; check the images and the loss.")
    if group["damping"].copies(finest=True):
        state["previous"] = parameter.detach().clone()
    scales = [group["form"].scale(float(group["lr"]) * layout.units().length, each.longest) for each in found]
    for step, each, scale in zip(steps, found, scales, strict=True):
        ends = {"composed": group["update"] == "compose", "sigma": group["sigma_warp"]}
        step.take(parameter, scale, each.farthest, **ends)
    decrease = sum(scale * each.decrease for scale, each in zip(scales, found, strict=True))
    state["predicted"] = decrease * voxels / count


def _sign(group: Group) -> int:
    return -1 if group["maximize"] else 1


def _residual(loss: float, group: Group) -> float:
    above = _sign(group) * (loss - group["lowest"])
    if above < 0 and not isinstance(group["form"], Root):
        raise InputError(
            f"The loss {loss:g} is {'above' if group['maximize'] else 'below'} `lowest`, {group['lowest']:g}; give the "
            "loss of a perfect match, for instance -1 for a negative correlation, or use form=Root(), which needs none."
        )
    return float(above)


def _unit(steps: Iterable[StepInParts]) -> float:
    """(Σ|g|² / Σ|g|)², the unit of a relative damping."""
    norms = [step.unit() for step in steps]
    squares, lengths = sum(each[0] for each in norms), sum(each[1] for each in norms)
    return (squares / lengths) ** 2 if lengths > 0 else 1.0


def _unpacked(group: Group) -> dict[str, Any]:
    """The settings that are objects, from plain data."""
    found = {}
    for name, kinds in SETTINGS.items():
        numbers = dict(group[name])
        found[name] = kinds[numbers["name"]](**numbers)
    return found


def _check(group: Group) -> None:
    for name, choices in (("update", UPDATES), ("reduction", REDUCTIONS)):
        if group[name] not in choices:
            raise InputError(f"Unknown {name} {group[name]!r}; use one of {', '.join(choices)}.")
    if not isinstance(group["form"], FORMS):
        raise InputError(f"The form {group['form']!r} must be one of Pointwise(), Tile() and Root().")
    if not isinstance(group["damping"], tuple(DAMPINGS.values())):
        raise InputError(f"The damping {group['damping']!r} must be a rule: Paper() or Trust().")
    if not (isinstance(group["lr"], (int, float, Tensor)) and 0 < group["lr"] < math.inf):
        raise InputError(f"The longest step lr={group['lr']} must be a positive number of voxels.")
    for name in ("sigma_grad", "sigma_warp"):
        if not 0 <= group[name] < math.inf:
            raise InputError(f"{name}={group[name]} must be 0 or a positive number of voxels.")
    for parameter in group["params"]:
        if parameter.dtype not in FLOATS:
            raise InputError(f"Displacements of type {parameter.dtype} cannot be optimised; use float32 or float64.")
        layout_of(parameter.shape, group["convention"], align_corners=group["align_corners"])

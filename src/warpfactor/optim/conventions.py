"""How other packages hold a displacement in a tensor, and the way to and from ours: (3, D, H, W) in voxels, z first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.optim.steps.base import Units


@dataclass(frozen=True)
class Convention:
    """A layout and a unit of displacements.

    Attributes:
        channels_last: components are the last axis, as in `grid_sample`; otherwise they come before the space.
        normalized: lengths of PyTorch's grids, which run from -1 to 1 along each axis; otherwise voxels.
        x_first: components are (x, y, z); otherwise (z, y, x), in the order of the array's axes.
    """

    channels_last: bool
    normalized: bool
    x_first: bool


CONVENTIONS = {
    "grid": Convention(channels_last=True, normalized=True, x_first=True),
    "grid_channels_first": Convention(channels_last=False, normalized=True, x_first=True),
    "voxels": Convention(channels_last=False, normalized=False, x_first=False),
}


@dataclass(frozen=True)
class FieldLayout:
    """Where the components, the batch and the space of one parameter are, and what a unit along each axis is.

    Attributes:
        components: the axis of the components.
        batched: whether there is a batch axis, which is the first.
        x_first: as in Convention.
        voxels: per axis (z, y, x), voxels of one unit of the parameter; 0 along z in 2-D.
        normalized: as in Convention.
    """

    components: int
    batched: bool
    x_first: bool
    voxels: tuple[float, float, float]
    normalized: bool

    def units(self) -> Units:
        """The unit of length of a step: that of the parameter. The longest step is in voxels of the longest axis."""
        length = 1 / max(self.voxels) if self.normalized else 1.0
        return Units(self.voxels, length, (1.0, 1.0, 1.0))

    @property
    def space(self) -> int:
        """The first axis of the space."""
        return int(self.batched) + (self.components == int(self.batched))

    def part(self, tensor: Tensor, image: int, first: int, last: int) -> Tensor:
        """An image of a batch, as a batch of one, from a plane (in 2-D a row) up to another; shares memory."""
        own = tensor[image : image + 1] if self.batched else tensor
        return own.narrow(self.space, first, last - first)

    def displacements(self, parameter: Tensor) -> Tensor:
        """(N, 3, D, H, W) in voxels."""
        found = self._empty(parameter)
        for axis, component in self._components(parameter):
            found[:, axis] = component * self.voxels[axis]
        return found

    def gradients(self, gradient: Tensor) -> Tensor:
        """(N, 3, D, H, W): derivatives by displacements in voxels."""
        found = self._empty(gradient)
        for axis, component in self._components(gradient):
            found[:, axis] = component / self.voxels[axis]
        return found

    def write(self, displacements: Tensor, parameter: Tensor) -> None:
        """Write (N, 3, D, H, W) displacements in voxels to the parameter."""
        for axis, component in self._components(parameter):
            component.copy_(displacements[:, axis] / self.voxels[axis])

    def _empty(self, parameter: Tensor) -> Tensor:
        """(N, 3, D, H, W) zeros."""
        _, first = self._components(parameter)[0]
        return parameter.new_zeros((len(first), 3, *first.shape[1:]))

    def _components(self, tensor: Tensor) -> list[tuple[int, Tensor]]:
        """The axes (0 is z) with their components, (N, D, H, W) each, which share the tensor's memory."""
        fields = tensor.movedim(self.components, int(self.batched))
        fields = fields if self.batched else fields[None]
        components = list(fields.unbind(1))
        if self.x_first:
            components.reverse()
        if len(components) == 2:
            components = [each[:, None] for each in components]
        return list(zip(range(3 - len(components), 3), components, strict=True))


def layout_of(shape: Sequence[int], convention: str, *, align_corners: bool = True) -> FieldLayout:
    """The layout of a parameter of this shape; InputError if it cannot hold displacements.

    Without a batch axis the shape has one number less. If both readings are possible, the first axis is the batch.

    Args:
        align_corners: as in `grid_sample`: whether -1 and 1 are the centres of the outermost voxels or their outer
            edges; read only where lengths are normalised.
    """
    if convention not in CONVENTIONS:
        raise InputError(f"Unknown convention {convention!r}; use one of {', '.join(CONVENTIONS)}.")
    rule = CONVENTIONS[convention]
    for batched in (True, False):
        ndim = len(shape) - 1 - batched
        components = len(shape) - 1 if rule.channels_last else int(batched)
        if ndim in (2, 3) and shape[components] == ndim:
            axes = [n for axis, n in enumerate(shape) if axis >= batched and axis != components]
            return FieldLayout(components, batched, rule.x_first, _voxels(axes, rule, align_corners), rule.normalized)
    wanted = "(N, D, H, W, 3) or (N, H, W, 2)" if rule.channels_last else "(N, 3, D, H, W) or (N, 2, H, W)"
    raise InputError(
        f"A parameter of shape {tuple(shape)} holds no displacements by the convention {convention!r}, which needs "
        f"{wanted}, with or without N; choose another of {', '.join(CONVENTIONS)}."
    )


def _voxels(shape: Sequence[int], rule: Convention, align_corners: bool) -> tuple[float, float, float]:
    """Voxels of one unit along z, y, x."""
    if min(shape) < 2:
        raise InputError(f"Displacements over {tuple(shape)} voxels: every axis needs at least 2; leave out others.")
    lengths = [(n - 1) / 2 if align_corners else n / 2 for n in shape] if rule.normalized else [1.0] * len(shape)
    return (lengths[-3] if len(shape) == 3 else 0.0, lengths[-2], lengths[-1])

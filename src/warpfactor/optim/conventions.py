"""How other packages hold a displacement in a tensor, and the way to and from ours: (3, D, H, W) in voxels, z first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
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

    def displacements(self, parameter: Tensor) -> Tensor:
        """(N, 3, D, H, W) in voxels."""
        return self._arranged(parameter) * self._scale(parameter)

    def gradients(self, gradient: Tensor) -> Tensor:
        """(N, 3, D, H, W): derivatives by displacements in voxels."""
        scale = self._scale(gradient)
        return torch.where(scale > 0, self._arranged(gradient) / scale, 0.0)

    def write(self, displacements: Tensor, parameter: Tensor) -> None:
        """Write (N, 3, D, H, W) displacements in voxels to the parameter."""
        scale = self._scale(displacements)
        fields = torch.where(scale > 0, displacements / scale, 0.0)
        if parameter.ndim - self.batched == 3:
            fields = fields[:, 1:, 0]
        if self.x_first:
            fields = fields.flip(1)
        fields = fields if self.batched else fields[0]
        parameter.copy_(fields.movedim(int(self.batched), self.components))

    def _arranged(self, tensor: Tensor) -> Tensor:
        """(N, 3, D, H, W), z first, in the units of the parameter."""
        fields = tensor.movedim(self.components, int(self.batched))
        fields = fields if self.batched else fields[None]
        if self.x_first:
            fields = fields.flip(1)
        if fields.ndim == 4:
            fields = torch.nn.functional.pad(fields[:, :, None], (0, 0, 0, 0, 0, 0, 1, 0))
        return fields

    def _scale(self, tensor: Tensor) -> Tensor:
        return torch.tensor(self.voxels, dtype=tensor.dtype, device=tensor.device).reshape(3, 1, 1, 1)


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

"""Mean squared difference of intensities, for images of one contrast: already in the residual form r = mean r_x²."""

from collections.abc import Sequence
from dataclasses import dataclass

from warpfactor.kernels.ops import Ops, Slab
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Plain
from warpfactor.terms.channels import Call, Channel, Channels, normalized_weights
from warpfactor.terms.slab import VoxelSlab, voxel_slabs


@dataclass(frozen=True)
class MSE(Plain):
    """Settings of the mean squared difference.

    Attributes:
        symmetric: use the mean of the warped and the fixed image's slope (the efficient second-order force).
        demons: α; write the demons force (paper eq. 9) instead of the gradient. Set by the step `demons`.
        lengths: what a unit of length is along each axis for that force.
    """

    symmetric: bool = False
    demons: float | None = None
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0)
    name: str = "mse"

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Channels:
        """The metric over the images of one level, the moving image in the fixed image's standardised units."""
        fixed, moving = scene.sides
        calls = []
        for channel, (of, om) in enumerate(zip(fixed.scale, moving.scale, strict=True)):
            uf, um = fixed.channel_units[channel], moving.channel_units[channel]
            # Each image was standardised by itself; a difference needs both in the same units, those of the fixed one.
            alike = (om[1] * um / (of[1] * uf), (om[0] - of[0]) / (of[1] * uf))
            calls.append(self._call(scene, channel, alike, uf * uf, ops))
        return Channels(tuple(calls), normalized_weights(weights, len(calls)))

    @property
    def slab_bytes(self) -> int:
        """The mask."""
        return 1

    def reach(self, level: int) -> int:
        """For derivatives."""
        return 1

    def prepare_slabs(
        self, scene: Scene, ops: Ops, slabs: Sequence[Slab], *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> tuple[VoxelSlab, ...]:
        """The metric over every slab of the fixed image."""
        return voxel_slabs(self, scene, ops, slabs, 2, weights)

    def _call(self, scene: Scene, channel: int, alike: tuple[float, float], unit: float, ops: Ops) -> Channel:
        """The kernel call of a channel; `unit` is what a squared difference is to be multiplied by."""
        fixed, moving = scene.sides
        images = fixed.data[channel], moving.data[channel]
        options = {
            "fixed_mask": fixed.mask,
            "moving_mask": moving.mask,
            "alike": alike,
            "symmetric": self.symmetric,
            "demons": self.demons,
            "lengths": self.lengths,
        }
        return Call(ops, "mse", lambda _: images, options, unit, forced=self.demons is not None)

"""Mutual information: r = log B - MI, natural logarithms throughout, for images of different contrast."""

from dataclasses import dataclass

from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene, sampled
from warpfactor.terms.base import Plain
from warpfactor.terms.channels import Call, Channel, Channels, normalized_weights

QUANTILE_SAMPLES = 1_000_000  # enough for percentiles to a thousandth of the range


@dataclass(frozen=True)
class MI(Plain):
    """Settings of mutual information.

    Attributes:
        bins: B, of each axis of the joint histogram.
        tails: fraction of intensities clipped at each end when the range of the bins is chosen.
    """

    bins: int = 32
    tails: float = 0.001
    name: str = "mi"

    def __post_init__(self) -> None:
        if not 5 <= self.bins <= 512:
            raise InputError(f"Mutual information needs 5 to 512 bins, not {self.bins}")
        if not 0 <= self.tails < 0.5:
            raise InputError(f"The clipped tails must be in [0, 0.5), not {self.tails}")

    def prepare(self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None) -> Channels:
        """The metric over the images of one level."""
        calls = tuple(self._call(channel, scene, ops) for channel in range(len(scene.fixed.data)))
        return Channels(calls, normalized_weights(weights, len(calls)))

    def _call(self, channel: int, scene: Scene, ops: Ops) -> Channel:
        fixed, moving = (side.data[channel] for side in scene.sides)
        fixed_mask, moving_mask = (side.mask for side in scene.sides)
        key = ("ranges of intensities", self.tails, channel)
        if key not in scene.notes:
            ranges = (robust_range(side.data[channel], side.mask, self.tails, ops) for side in scene.sides)
            scene.notes[key] = tuple(ranges)
        fixed_range, moving_range = scene.notes[key]
        options = {
            "bins": self.bins,
            "fixed_range": fixed_range,
            "moving_range": moving_range,
            "fixed_mask": fixed_mask,
            "moving_mask": moving_mask,
        }
        return Call(ops, "mi", lambda _: (fixed, moving), options)


def robust_range(image: Tensor, mask: Tensor | None, tails: float, ops: Ops) -> tuple[float, float]:
    """Intensity range without the given fraction at each end; the full range where that leaves nothing."""
    values = sampled(image, mask, QUANTILE_SAMPLES)
    low, high = ops.percentiles(values, (100 * tails, 100 * (1 - tails)))
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)

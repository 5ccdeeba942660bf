"""Taps of the Gaussian that smooths fields, shared by all backends."""

import math
from itertools import pairwise


def gaussian_kernel(sigma: float, truncate: float) -> list[float]:
    """Gaussian integrated over each voxel, out to `truncate` sigmas (at least one voxel), summing to one."""
    radius = max(1, math.ceil(truncate * sigma - 0.5))
    edges = [math.erf((k - 0.5) / (math.sqrt(2) * sigma)) for k in range(-radius, radius + 2)]
    taps = [b - a for a, b in pairwise(edges)]
    total = sum(taps)
    return [t / total for t in taps]

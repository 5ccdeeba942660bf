"""The frame of an image: voxels outside its field of view, which a scanner or a tool has filled with one value.

A reconstructed circle of a CT in a square of -2000, the fan of an ultrasound probe in black, a volume padded to a
larger box: the border of such a frame is as sharp as any in the image, and has nothing to do with what it shows. Where
a frame is found, it is masked as a user would mask it.

The empty surroundings of a brain from which the skull was removed are filled in the same way, but their border is
anatomy; a part that was cut off and filled lies on one side only (see missing.py). A frame of a volume has the same
border in all planes, between which what is inside changes. A frame of a slice leaves a box, or an image that is cut
off and shows an even background there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.scene.object import rim

EMPTY = 0.15  # of the border at least has one value, or there is no frame
PLAIN = 0.5  # of what is inside has one value: a label map, a silhouette
DISTINCT = 0.1  # of the range of intensities, between the value of a frame and the median next to it
AROUND = (
    0.7  # of the corners of an image; a part of the object that was cut off and filled leaves two of a plane's four
)
FEWEST_PLANES = 4
FULL = 0.9  # of what lies next to the border shows something; the border of an object moves from plane to plane
CHANGES = 0.8  # correlation of the first and the last plane, up to which they are not copies of each other
STRAIGHT = 0.5  # of each side of a padded slice shows something
WHOLE = 0.95  # of the width of a slice: a circle touches its sides, but for a pixel
CUT = 0.05  # of a slice's sides show something; an object that is not cut off touches them in few points
EVEN = 0.1  # of the range: background, if the middle half of what lies next to a frame is closer together
NEXT = 3  # voxels: so far what lies next to a frame is looked at
SAMPLES = 200_000


def frame_of(image: Tensor) -> Tensor | None:
    """(D, H, W) bool: where a (C, D, H, W) image is outside its field of view; None if it has no frame.

    A voxel more than those of one value belongs to it: resampling mixes both.
    """
    values = _filled_with(image)
    if values is None:
        return None
    empty = torch.stack([channel == value for channel, value in zip(image, values, strict=True)]).all(0)
    if bool(empty.all()):  # of one value everywhere; whoever prepares the image says so
        return None
    frame = _of_slice(image, empty) if image.shape[1] == 1 else _of_volume(image, empty)
    if frame is None:
        return None
    if float(_corners(frame).float().mean()) < AROUND:
        return None
    frame = _widened(frame, 1)
    counts = all(_distinct(channel, value, frame) for channel, value in zip(image, values, strict=True))
    return frame if counts else None


def _filled_with(image: Tensor) -> list[float] | None:
    """Per channel the commonest value of its border; None if it is not common."""
    values = []
    for channel in image:
        border = rim(channel)
        found, counts = torch.unique(border[:: 1 + border.numel() // SAMPLES], return_counts=True)
        if not len(counts) or float(counts.max() / counts.sum()) < EMPTY:
            return None
        values.append(float(found[counts.argmax()]))
    return values


def _of_volume(image: Tensor, empty: Tensor) -> Tensor | None:
    """What is empty in all planes along an axis, if its border is the same in all of them and what is inside is not."""
    for axis in range(3):
        shown = _extent(empty, axis)
        planes = empty.narrow(axis, shown.start, shown.stop - shown.start)
        plane = planes.all(dim=axis, keepdim=True)
        if planes.shape[axis] < FEWEST_PLANES or not bool(plane.any()):
            continue
        beside = _widened(plane, NEXT) & ~plane
        full = float((~planes & beside).sum()) >= FULL * planes.shape[axis] * float(beside.sum())
        if full and _changes(image, ~plane, axis, shown):
            frame = plane.expand_as(empty).clone()
            frame.narrow(axis, 0, shown.start).fill_(True)
            frame.narrow(axis, shown.stop, empty.shape[axis] - shown.stop).fill_(True)
            return frame
    return None


def _of_slice(image: Tensor, empty: Tensor) -> Tensor | None:
    """What is empty, if that is the padding of a box, or cuts a slice off and has an even background beside it."""
    box = (slice(None), _extent(empty, 1), _extent(empty, 2))
    inside = ~empty[box]
    shares = [float(inside.select(axis, end).float().mean()) for axis in (1, 2) for end in (0, -1)]
    if inside.shape != empty.shape and min(shares) >= STRAIGHT:
        frame = torch.ones_like(empty)
        frame[box] = False
        return frame
    beside = _widened(empty, 1)
    whole = all(len(range(n)[part]) >= WHOLE * n for n, part in zip(empty.shape, box, strict=True))
    cut = whole and float(_rim_of_slice(inside).float().mean()) >= CUT
    return empty if cut and all(_is_even(channel, beside) for channel in image) else None


def _rim_of_slice(inside: Tensor) -> Tensor:
    """The outermost pixels of a (1, H, W) slice."""
    flat = inside[0]
    return torch.cat([flat[0], flat[-1], flat[1:-1, 0], flat[1:-1, -1]])


def _corners(frame: Tensor) -> Tensor:
    """The corners of an image."""
    for axis, n in enumerate(frame.shape):
        frame = frame.index_select(axis, torch.tensor([0, n - 1], device=frame.device))
    return frame


def _extent(empty: Tensor, axis: int) -> slice:
    """From the first to the last plane that is not empty."""
    shown = torch.nonzero(~empty.all(dim=[a for a in range(3) if a != axis]))
    return slice(int(shown[0]), int(shown[-1]) + 1) if len(shown) else slice(0, 0)


def _changes(image: Tensor, inside: Tensor, axis: int, shown: slice) -> bool:
    """Whether the first and the last plane show different things; a plane that was copied has no third dimension."""
    where = inside.squeeze(axis)
    for channel in image:
        pair = torch.stack([channel.select(axis, k)[where].to(torch.float64) for k in (shown.start, shown.stop - 1)])
        pair -= pair.mean(dim=1, keepdim=True)
        (one, both), (_, other) = (pair @ pair.T).tolist()
        if not both <= CHANGES * math.sqrt(one * other):
            return False
    return True


def _is_even(channel: Tensor, frame: Tensor) -> bool:
    low, _, high, width = _next_to(channel, frame)
    return high - low <= EVEN * width


def _distinct(channel: Tensor, value: float, frame: Tensor) -> bool:
    """Whether an image is left inside a frame, and has other values beside it than the frame's."""
    inside = channel[~frame]
    if not inside.numel() or int(torch.unique(_some(inside), return_counts=True)[1].max()) >= PLAIN * len(
        _some(inside)
    ):
        return False
    _, middle, _, width = _next_to(channel, frame)
    return abs(middle - value) > DISTINCT * width


def _next_to(channel: Tensor, frame: Tensor) -> tuple[float, float, float, float]:
    """Quartiles of what lies next to a frame, and the range of all that is inside."""
    beside, inside = channel[_widened(frame, NEXT) & ~frame], channel[~frame]
    if not beside.numel():
        return 0.0, 0.0, math.inf, 0.0
    low, middle, high = _quantiles(beside, (0.25, 0.5, 0.75))
    least, most = _quantiles(inside, (0.01, 0.99))
    return low, middle, high, most - least


def _quantiles(values: Tensor, shares: Sequence[float]) -> list[float]:
    some = _some(values)
    found: list[float] = torch.quantile(some, torch.tensor(shares, device=some.device)).tolist()
    return found


def _some(values: Tensor) -> Tensor:
    return values[:: 1 + values.numel() // SAMPLES].to(torch.float32)


def _widened(voxels: Tensor, steps: int) -> Tensor:
    """What has a voxel that is set within so many along each axis; bytes only, as this is of the image's size."""
    found = voxels.clone()
    for axis, n in enumerate(voxels.shape):
        for _ in range(steps if n > 1 else 0):
            before = found.clone()
            found.narrow(axis, 1, n - 1).logical_or_(before.narrow(axis, 0, n - 1))
            found.narrow(axis, 0, n - 1).logical_or_(before.narrow(axis, 1, n - 1))
    return found

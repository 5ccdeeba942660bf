"""Makes registration.png, the picture of the README, from the phantom: python docs/images/make_picture.py.

One anatomy, two images, a known warp between them. The four panels are the fixed image, the moving image, the moving
image with the fixed image's square grid as the found transform lays it, and the moving image warped onto the fixed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import warpfactor as wf

PICTURE = Path(__file__).with_name("registration.png")
SHAPE = (1, 208, 176)
LONGEST_VOX = 8.0
SPACING_VOX = 8  # of the grid's lines
SEED = 2


def main(path: Path = PICTURE) -> None:
    """Register the phantom and draw it."""
    made = wf.phantom.phantom(SHAPE, displacement_vox=LONGEST_VOX, seed=SEED)
    found = wf.register(made.fixed[0].numpy(), made.moving[0].numpy())
    draw(made, found).savefig(path, dpi=94, metadata={"Software": None})


def draw(made: wf.phantom.Phantom, found: wf.Registration) -> Figure:
    """The four panels side by side."""
    matplotlib.use("Agg")
    _, height, width = SHAPE
    figure = Figure(figsize=(11, 11 * height / width / 4 + 0.35), facecolor="white")
    panels: Any = figure.subplots(1, 4)
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.005, top=0.91, wspace=0.02)
    images = (made.fixed[0], made.moving[0], made.moving[0], found.warped.data[0, 0])
    titles = ("fixed", "moving", "moving, with the found grid", "moving, warped onto fixed")
    for panel, image, title in zip(panels, images, titles, strict=True):
        panel.imshow(image.numpy(), cmap="gray", vmin=0, vmax=1.05, interpolation="nearest")
        panel.set_title(title, fontsize=10)
        panel.set_axis_off()
    for line in grid_lines(found):
        panels[2].plot(line[:, 0], line[:, 1], color="#ffb000", linewidth=0.7)
    panels[2].set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    return figure


def grid_lines(found: wf.Registration) -> list[Any]:
    """(N, 2) lines x, y in moving space: those of a square grid in fixed space, carried along."""
    _, height, width = SHAPE
    lines = []
    for y in np.arange(SPACING_VOX / 2, height, SPACING_VOX):
        lines.append(np.stack([np.arange(width), np.full(width, y)], axis=1))
    for x in np.arange(SPACING_VOX / 2, width, SPACING_VOX):
        lines.append(np.stack([np.full(height, x), np.arange(height)], axis=1))
    return [found.apply_points(np.c_[line, np.zeros(len(line))], to="moving")[:, :2] for line in lines]


if __name__ == "__main__":
    main()

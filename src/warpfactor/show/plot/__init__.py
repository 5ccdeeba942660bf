"""Pictures of images and results as matplotlib figures; nothing is shown, saved or set for other figures.

Each function returns a `matplotlib.figure.Figure`: show it in a notebook by naming it, keep it with `figure.savefig`.
"""

from warpfactor.show.plot.compare import overlay
from warpfactor.show.plot.course import curves
from warpfactor.show.plot.maps import displacement, grid, image, jacobian

__all__ = ["curves", "displacement", "grid", "image", "jacobian", "overlay"]

"""Images and results as matplotlib figures.

Each function returns a `matplotlib.figure.Figure`. A notebook displays it as the value of a cell; save it with
`figure.savefig`. Nothing is displayed, and no global setting of matplotlib is changed.

    >>> import warpfactor as wf
    >>> figure = wf.plot.image(wf.phantom.phantom((16, 20, 18)).fixed)
    >>> len(figure.axes)
    3
"""

from warpfactor.show.plot.compare import overlay
from warpfactor.show.plot.curves import curves
from warpfactor.show.plot.maps import displacement, grid, image, jacobian, statistic

__all__ = ["curves", "displacement", "grid", "image", "jacobian", "overlay", "statistic"]

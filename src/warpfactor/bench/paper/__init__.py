"""The experiments of the paper, on any dataset. Each experiment is one module and one entry in `EXPERIMENTS`.

`study` defines what an experiment is and works with; `page` writes its files.
"""

from __future__ import annotations

from warpfactor.bench.paper import efficiency, labels, main, rejection, sensitivity, tile, transfer, tune
from warpfactor.bench.paper.study import Experiment

_ALL = (main, labels, sensitivity, tile, tune, transfer, rejection, efficiency)
EXPERIMENTS: dict[str, Experiment] = {each.EXPERIMENT.name: each.EXPERIMENT for each in _ALL}

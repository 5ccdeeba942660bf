"""The paper's experiments on anybody's data: one file each, one line here.

`study.Study` is what they work with, `experiment.Experiment` what they are, `write.write` makes their files.
"""

from __future__ import annotations

from warpfactor.bench.paper import efficiency, labels, main, rejection, sensitivity, tile, transfer, tune
from warpfactor.bench.paper.experiment import Experiment

_ALL = (main, labels, sensitivity, tile, tune, transfer, rejection, efficiency)
EXPERIMENTS: dict[str, Experiment] = {each.EXPERIMENT.name: each.EXPERIMENT for each in _ALL}

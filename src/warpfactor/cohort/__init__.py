"""Many registrations at once, on a laptop or a cluster; this package is `warpfactor.cohort`."""

from warpfactor.cohort.atlas.segment import Segmentation, segment
from warpfactor.cohort.engine.settings import EngineSettings
from warpfactor.cohort.events import CohortEvent, PlannedRow
from warpfactor.cohort.job import JobOptions, Outcome
from warpfactor.cohort.study import run
from warpfactor.cohort.table.row import CohortError, CohortRow
from warpfactor.cohort.table.template import BidsFilter, Template

__all__ = [
    "BidsFilter",
    "CohortError",
    "CohortEvent",
    "CohortRow",
    "EngineSettings",
    "JobOptions",
    "Outcome",
    "PlannedRow",
    "Segmentation",
    "Template",
    "run",
    "segment",
]

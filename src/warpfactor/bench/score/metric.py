"""The figures a run is judged by: their names in files, how people read them, and which way is better."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A figure of a run.

    Attributes:
        key: its name in the scores of a run and in CSV and JSON.
        title: for tables and axes, with the unit.
        digits: after the point.
        higher_is_better: None if neither way is.
    """

    key: str
    title: str
    digits: int = 3
    higher_is_better: bool | None = False


DICE = Metric("dice", "Dice", 4, True)
HD95 = Metric("hd95_mm", "HD95 mm", 2)
TRE = Metric("tre_mean_mm", "TRE mm", 3)
TRE_MEDIAN = Metric("tre_median_mm", "TRE median", 3)
TRE_MAX = Metric("tre_max_mm", "TRE max", 2)
MI = Metric("mi_nats", "MI nats", 3, True)
SD_LOG_J = Metric("sd_log_jacobian", "SD log J", 3)
FOLDED = Metric("folded_fraction", "folded", 6)
WALL = Metric("wall_s", "wall s", 1)
CPU = Metric("cpu_s", "CPU s", 1)
MEMORY = Metric("peak_memory_mb", "MB", 0)

ACCURACY = (DICE, TRE, MI)  # what a dataset is judged by: the first that it has
SHOWN = (DICE, HD95, TRE, TRE_MEDIAN, TRE_MAX, MI, SD_LOG_J, FOLDED, WALL, CPU, MEMORY)

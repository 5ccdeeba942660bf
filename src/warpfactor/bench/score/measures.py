"""Measures by which runs are judged: name, title, number of digits, and whether higher or lower is better."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """A quantity that is measured for every run, such as Dice or wall time.

    Attributes:
        key: Name in the scores of a run and in CSV and JSON files.
        title: Title in tables and plots, with the unit.
        digits: Number of digits after the decimal point.
        higher_is_better: None if neither direction is better.
    """

    key: str
    title: str
    digits: int = 3
    higher_is_better: bool | None = False

    @property
    def axis_title(self) -> str:
        """Title for the axis of a plot, with the direction that is better."""
        hints = {True: " (higher is better)", False: " (lower is better)", None: ""}
        return self.title + hints[self.higher_is_better]


DICE = Measure("dice", "Dice", 4, True)
HD95 = Measure("hd95_mm", "HD95 mm", 2)
TRE = Measure("tre_mean_mm", "TRE mm", 3)
TRE_MEDIAN = Measure("tre_median_mm", "TRE median", 3)
TRE_MAX = Measure("tre_max_mm", "TRE max", 2)
MI = Measure("mi_nats", "MI nats", 3, True)
SD_LOG_J = Measure("sd_log_jacobian", "SD log J", 3)
SHEAR = Measure("shear", "shear", 3)
FOLDED = Measure("folded_fraction", "folded", 6)
WALL = Measure("wall_s", "wall s", 1)
CPU = Measure("cpu_s", "CPU s", 1)
MEMORY = Measure("peak_memory_mb", "MB", 0)

ACCURACY = (DICE, TRE, MI)  # a dataset is judged by the first of these that it has
REGULARITY = (SD_LOG_J, SHEAR)
SHOWN = (DICE, HD95, TRE, TRE_MEDIAN, TRE_MAX, MI, *REGULARITY, FOLDED, WALL, CPU, MEMORY)

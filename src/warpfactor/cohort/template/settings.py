"""How a template is made, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TemplateSettings:
    """How a template is made.

    Attributes:
        iterations: most rounds of registering everybody to the template and averaging.
        tolerance: rounds end when the template changes by less, relative to its contrast (root mean square).
        sharpen: how strongly the average is sharpened; 0 leaves it as it is.
        symmetric: whether left and right are to be mirror images of each other.
        start: an image to start from, a file per channel, instead of the mean after linear alignment.
    """

    iterations: int = 4
    tolerance: float = 0.01
    sharpen: float = 0.5
    symmetric: bool = False
    start: tuple[Path, ...] = ()

    def problems(self) -> Iterator[str]:
        """What is wrong with the settings, one sentence each."""
        if self.iterations < 1:
            yield f"The number of iterations must be at least 1, not {self.iterations}."
        if self.sharpen < 0:
            yield f"The sharpening must be 0 or more, not {self.sharpen:g}."
        if self.tolerance < 0:
            yield f"The tolerance must be 0 or more, not {self.tolerance:g}."
        for path in self.start:
            if not path.exists():
                yield f"{path}: there is no such image to start from."

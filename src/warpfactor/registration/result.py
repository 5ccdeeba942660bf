"""Registration: the result of registering two images, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import ArrayLike

from warpfactor.checks.alignment import find_notices
from warpfactor.errors import Notice
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.geometry.velocity import Velocity
from warpfactor.io.lazy import LazyImage
from warpfactor.kernels import BACKENDS, select
from warpfactor.kernels.ops import Ops
from warpfactor.measure.regularity import Figures
from warpfactor.recipebook.recipe import Recipe
from warpfactor.registration.apply import apply_to_image, apply_to_points
from warpfactor.registration.inputs import Images
from warpfactor.registration.midpoint import midpoint
from warpfactor.registration.plan import MemoryPlan
from warpfactor.registration.record import entries_of, stages_to_dicts
from warpfactor.show.notebook import to_html
from warpfactor.show.wording import ending_sentence, sentence
from warpfactor.stages.found import Halves
from warpfactor.stages.stage import Ending, Stage

if TYPE_CHECKING:
    from warpfactor.registration.companions import Companions
    from warpfactor.show.report import Report


@dataclass(frozen=True)
class FullImages:
    """The images of a result that holds coarse ones only; parts of them are read from their files.

    Attributes:
        fixed, moving: at full resolution.
    """

    fixed: LazyImage
    moving: LazyImage


@dataclass(frozen=True)
class RunInfo:
    """Where and how a registration ran.

    Attributes:
        device, backend, threads, seed: as used.
        seconds: by part, in order, with "total".
        peak_memory_mb: peak memory of the process; None where the system does not report it.
        versions: of everything that can change the numbers.
        nonfinite: number of voxels of the fixed and the moving image that are NaN or infinite and were ignored.
        missing: share of the object of the moving image that is missing from the fixed image and was excluded, and the
            other way round; usually 0.
        outside: value of each channel of the warped image where there is no moving image.
        names: of the fixed and the moving image.
        sources: absolute paths of the images and masks that were given as files, by name.
        prints: SHA-256, size and time of those files when they were read, by name.
        ranks: number of processes that shared the deformable stage.
        rank_peaks: the peak memory of each of these in bytes when it ended, if there were several.
        plan: how it kept within a limit of memory, if there was one.
    """

    device: str
    backend: str
    threads: int
    seed: int
    seconds: Mapping[str, float]
    peak_memory_mb: float | None
    versions: Mapping[str, str]
    nonfinite: tuple[int, int]
    missing: tuple[float, float]
    outside: tuple[float, ...]
    names: tuple[str, str]
    sources: Mapping[str, Path] = field(default_factory=dict)
    prints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ranks: int = 1
    rank_peaks: tuple[int, ...] = ()
    plan: MemoryPlan | None = None

    def with_seconds(self, part: str, seconds: float) -> RunInfo:
        """The same run with the time of one more part, which the total then includes."""
        parts = {name: value for name, value in self.seconds.items() if name != "total"}
        parts[part] = parts.get(part, 0.0) + seconds
        return replace(self, seconds={**parts, "total": self.seconds["total"] + seconds})


@dataclass(frozen=True, eq=False)
class Registration:
    """The result of `register`: y = affine(x + warp(x)) maps points of fixed space to moving space.

        >>> import warpfactor as wf
        >>> made = wf.phantom.phantom((24, 26, 24))
        >>> result = wf.register(made.fixed, made.moving, recipe="fast")
        >>> result.warped.grid == result.fixed_grid
        True
        >>> result.notices  # nothing speaks against this result
        ()

    Attributes:
        warped: the moving image on the fixed grid, in its own intensities, interpolated once.
        affine: fixed to moving, LPS mm.
        warp: displacement of fixed space, before the affine; None without a deformable stage, or if its warp was
            discarded because it did not improve the similarity.
        inverse_warp: inverse of the warp, on the same grid.
        images: the images and masks that were registered, as they were read.
        history: how each stage went, with one event per iteration.
        ending: why the last stage ended.
        figures: regularity of the warp and error of its inverse.
        recipe: all settings, as run.
        run: where and how it ran.
        halves: how both images get to the middle, of stages that move both.
        velocity: the field of which the warp is the exponential, of the recipe `velocity`.
        full: the images at full resolution, if a limit of memory left `images`, `warped` and the warp at half of it.
    """

    warped: Image
    affine: Affine
    warp: Warp | None
    inverse_warp: Warp | None
    images: Images
    history: tuple[Stage, ...]
    ending: Ending
    figures: Figures
    recipe: Recipe
    run: RunInfo
    halves: Halves | None = None
    velocity: Velocity | None = None
    full: FullImages | None = None

    def __repr__(self) -> str:
        costs = [f"{stage.name} {stage.change(4)}" for stage in self.history]
        return f"Registration({self.recipe.name}: {', '.join(costs)}; {self.status})"

    def _repr_html_(self) -> str:
        """The figures and the warped image, for notebooks."""
        return to_html(self.to_dict(), self._repr_png_())

    def _repr_png_(self) -> bytes:
        """The warped image, for notebooks that show pictures only."""
        return self.warped._repr_png_()

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings about the result, as codes and facts; usually none."""
        return find_notices(stages_to_dicts(self.history), self.affine.matrix, self.run.missing)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices as sentences."""
        return tuple(sentence(notice) for notice in self.notices)

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped before its end; the result is then the best so far."""
        return self.ending is Ending.INTERRUPTED

    @property
    def status(self) -> str:
        """How the run ended, as a sentence."""
        return ending_sentence(self.ending, self.history[-1].name if self.history else "")

    @property
    def fixed_grid(self) -> Grid:
        """The grid of the fixed image."""
        return self.warped.grid if self.full is None else self.full.fixed.grid

    @property
    def moving_grid(self) -> Grid:
        """The grid of the moving image."""
        return self.images.moving.grid if self.full is None else self.full.moving.grid

    @property
    def transform(self) -> Chain:
        """Maps points of fixed space to moving space, and resamples images of moving space onto fixed grids."""
        parts: tuple[Transform, ...] = (self.affine,) if self.warp is None else (self.warp, self.affine)
        return Chain(parts, "fixed", "moving")

    @property
    def inverse(self) -> Chain:
        """Maps points of moving space to fixed space, and resamples images of fixed space onto moving grids."""
        back = self.affine.inverse()
        parts: tuple[Transform, ...] = (back,) if self.inverse_warp is None else (back, self.inverse_warp)
        return Chain(parts, "moving", "fixed")

    @property
    def ops(self) -> Ops:
        """The backend of the run if it supports the CPU, where results are applied; otherwise the CPU's fastest."""
        backend = BACKENDS.get(self.run.backend)
        return backend.load() if backend is not None and backend.runs_on(torch.device("cpu")) else select()

    def apply(
        self,
        image: Any,
        *,
        to: str = "fixed",
        mode: str = "linear",
        outside: float | None = None,
        grid: Grid | None = None,
    ) -> Image:
        """Resample another image of one space to the other.

            >>> import warpfactor as wf
            >>> made = wf.phantom.phantom((24, 26, 24))
            >>> result = wf.register(made.fixed, made.moving, recipe="affine")
            >>> labels = result.apply(made.moving_labels, mode="label")
            >>> labels.grid == result.fixed_grid
            True

        Args:
            image: anything that `register` accepts as an image.
            to: the space of the output: "fixed" (for an image of moving space) or "moving".
            mode: interpolation: "linear", "nearest", "label" (labels never mix) or "bspline".
            outside: value outside the image; by default its own background, or 0 for labels ("nearest" and "label").
            grid: the output grid; by default that of the image of that space.
        """
        return apply_to_image(self, image, to=to, mode=mode, outside=outside, grid=grid)

    def apply_points(self, points: ArrayLike, *, to: str = "fixed") -> Points:
        """Map points of one space to the other, as their image would move.

            >>> import warpfactor as wf
            >>> made = wf.phantom.phantom((24, 26, 24))
            >>> result = wf.register(made.fixed, made.moving, recipe="affine")
            >>> result.apply_points([[12.0, 13.0, 12.0]], to="moving").shape
            (1, 3)

        Args:
            points: (N, 3) LPS mm; points of 2-D images may be (N, 2), and are returned so.
            to: the space of the output, "fixed" or "moving".
        """
        return apply_to_points(self, points, to=to)

    def midpoint(self, of: str = "mean") -> Image:
        """The images in the space half-way between them, for results of the recipe `symmetric`.

            >>> import warpfactor as wf
            >>> made = wf.phantom.phantom((24, 26, 24))
            >>> result = wf.register(made.fixed, made.moving, recipe="symmetric")
            >>> result.midpoint().grid.shape
            (24, 26, 24)

        Args:
            of: "fixed" or "moving" image, as its half of the way shows it, or the "mean" of both where both are.
        """
        return midpoint(self, of)

    def report(self) -> Report:
        """The report of this result: an HTML page and the verdict on it; computed once.

        >>> import warpfactor as wf
        >>> made = wf.phantom.phantom((24, 26, 24))
        >>> report = wf.register(made.fixed, made.moving, recipe="fast").report()
        >>> report.verdict.level in ("green", "amber", "red")
        True
        >>> "<html" in report.html
        True
        """
        return self._report

    @cached_property
    def _report(self) -> Report:
        from warpfactor.registration.report import report_of

        return report_of(self)

    def save(
        self,
        folder: str | Path,
        *,
        force: bool = False,
        report: bool = True,
        companions: Companions | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the result into a folder, which appears complete or not at all, and return its path.

            >>> import tempfile
            >>> import warpfactor as wf
            >>> made = wf.phantom.phantom((24, 26, 24))
            >>> result = wf.register(made.fixed, made.moving, recipe="fast")
            >>> with tempfile.TemporaryDirectory() as place:
            ...     folder = result.save(f"{place}/out")
            ...     sorted(path.name for path in folder.iterdir())
            ['0GenericAffine.mat', '1InverseWarp.nii.gz', '1Warp.nii.gz', 'report.html', 'result.json', 'warped.nii.gz']

        The files are warped.nii.gz; 0GenericAffine.mat, 1Warp.nii.gz and 1InverseWarp.nii.gz, which ANTs understands;
        report.html; and result.json with the recipe, figures, history, verdict, and the places of the input files.

        Args:
            folder: the folder to write.
            force: replace an earlier result in that folder.
            report: write report.html, and the verdict into result.json.
            companions: label maps and landmarks to carry along; adds warped_labels.nii.gz and their scores.
            extra: more entries for result.json; a mapping is merged with an entry of the same name.
        """
        from warpfactor.registration.folder import save_result

        return save_result(self, folder, force=force, report=report, companions=companions, extra=extra)

    def to_dict(self) -> dict[str, Any]:
        """The content of result.json: everything but images and fields."""
        return entries_of(self)

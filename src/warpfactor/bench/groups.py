"""What a template and a fusion of atlases are worth on a group of labelled images.

    python -m warpfactor.bench.groups 'brain/*_t1_brain.nii.gz' --labels 'brain/*_labels.nii.gz' -o groups --spacing 2

Every image is segmented by all others (leave one out). The same registrations say how well labels of all pairs agree in
the space of each single image; then a template is built, and they are compared in its space. `--part` does some of that
only: `reversed` builds the template again from the images in reverse order, and `ants` lets antspyx build one of the
same images with as many iterations; both give processor and wall time. What was finished is not done again, but then
the times are not those of the whole.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import warpfactor as wf
from warpfactor.bench.run.meter import ResourceUse, measured
from warpfactor.cohort import EngineSettings, JobOptions
from warpfactor.cohort.atlas.fusion import FUSIONS
from warpfactor.cohort.template import TemplateSettings
from warpfactor.cohort.template.builder import SUBJECTS
from warpfactor.io import write_labels
from warpfactor.io.jsontext import json_text
from warpfactor.kernels import select
from warpfactor.registration.record import WARPED_LABELS

PARTS = ("template", "leave-one-out", "reversed", "ants")
TEMPLATE = "template"


@dataclass(frozen=True)
class Member:
    """A labelled image of the group.

    Attributes:
        name: of its folders.
        image, labels: files.
    """

    name: str
    image: Path
    labels: Path

    def read(self) -> Tensor:
        """Its label map."""
        return wf.read_labels(self.labels).data[0]


@dataclass(frozen=True)
class GroupStudy:
    """A group, and how it is registered.

    Attributes:
        members: the labelled images.
        folder: for everything that is written.
        iterations: of the template.
        recipe: of all registrations.
        engine: where they run.
    """

    members: tuple[Member, ...]
    folder: Path
    iterations: int
    recipe: str
    engine: EngineSettings

    @property
    def options(self) -> JobOptions:
        return JobOptions(report=False)

    def common(self) -> list[int]:
        """The labels that everybody has."""
        sets = [set(torch.unique(member.read()).tolist()) for member in self.members]
        return sorted(set.intersection(*sets) - {0})


def gather(images: str, labels: str) -> tuple[Member, ...]:
    """The members whose files match two patterns, each in the order of the names."""
    pairs = list(zip(_matching(images), _matching(labels), strict=True))
    return tuple(Member(image.name.split("_")[0].split(".")[0], image, label) for image, label in pairs)


def coarser(member: Member, folder: Path, spacing_mm: float) -> Member:
    """A member resampled to a coarser grid, images smoothed before."""
    image, labels = wf.read_image(member.image), wf.read_labels(member.labels)
    factors = [spacing_mm / s if n > 1 else 1.0 for n, s in zip(image.grid.shape, image.grid.spacing_mm, strict=True)]
    grid = image.grid.scaled(factors)
    sigma = [0.5 * max(0.0, factor**2 - 1.0) ** 0.5 for factor in factors]
    smooth = wf.Image(select().smooth_gaussian(image.data.clone(), sigma), image.grid)
    made = Member(member.name, folder / f"{member.name}.nii.gz", folder / f"{member.name}_labels.nii.gz")
    wf.write_image(wf.Affine().resample(smooth, grid), made.image, force=True)
    write_labels(wf.Affine().resample(labels, grid, mode="label"), made.labels, force=True)
    return made


def leave_one_out(study: GroupStudy, wanted: Sequence[int]) -> dict[str, Any]:
    """Dice of every image segmented by all others, and of all pairs in the space of every image."""
    rules = {rule: list[float]() for rule in FUSIONS}
    alone, best = list[float](), list[float]()
    spaces, spaces_of_others = dict[str, float](), dict[str, float]()
    for member in study.members:
        others = [other for other in study.members if other is not member]
        table = [{"name": other.name, "image": other.image, "labels": other.labels} for other in others]
        place, truth = study.folder / "segmented" / member.name, member.read()
        for rule, scores in rules.items():
            found = wf.cohort.segment(
                member.image, table, place, fusion=rule, recipe=study.recipe, options=study.options, engine=study.engine
            )
            scores.append(mean_dice(truth, found.labels.data[0], wanted))
        warped = {member.name: truth, **_warped(place / "atlases", others)}
        single = [mean_dice(truth, warped[other.name], wanted) for other in others]
        alone.append(sum(single) / len(single))
        best.append(max(single))
        spaces[member.name] = all_pairs(warped, wanted)
        spaces_of_others[member.name] = all_pairs({k: v for k, v in warped.items() if k != member.name}, wanted)
        _say(f"{member.name}: one atlas {alone[-1]:.4f}, " + ", ".join(f"{r} {s[-1]:.4f}" for r, s in rules.items()))
    return {
        "one atlas": alone,
        "best atlas": best,
        **rules,
        "means": {name: sum(each) / len(each) for name, each in {"one atlas": alone, "best": best, **rules}.items()},
        "pairs in the space of": spaces,
        "of those, pairs without its own labels": spaces_of_others,
    }


def through_template(study: GroupStudy, wanted: Sequence[int]) -> dict[str, Any]:
    """Dice of all pairs in the space of a template, its sharpness, and the time that it took."""
    with measured() as used:
        found = build(study, study.members, TEMPLATE)
    return {
        "pairs": all_pairs(_warped(study.folder / TEMPLATE / SUBJECTS, study.members), wanted),
        "sharpness": [record.sharpness_per_mm for record in found.iterations],
        "change": [record.change for record in found.iterations],
        "mean shift mm": [record.shift_mm for record in found.iterations],
        **_times(used),
    }


def in_reverse(study: GroupStudy) -> dict[str, Any]:
    """How far the template is from that of the same images in reverse order, both made from nothing."""
    first = build(study, study.members, TEMPLATE)
    second = build(study, study.members[::-1], f"{TEMPLATE}_reversed")
    return {"largest difference": float((second.image.data - first.image.data).abs().max())}


def build(study: GroupStudy, members: Sequence[Member], name: str) -> wf.template.GroupTemplate:
    """The template of members in that order, in a folder of that name."""
    return wf.template.build(
        [{"name": member.name, "image": member.image, "labels": member.labels} for member in members],
        study.folder / name,
        settings=TemplateSettings(iterations=study.iterations, tolerance=0.0),
        recipe=study.recipe,
        options=study.options,
        engine=study.engine,
    )


def ants_template(study: GroupStudy, wanted: Sequence[int]) -> dict[str, Any]:
    """Time of antspyx' template of the same images, how sharp it is, and Dice of all pairs registered to it by ours."""
    import ants  # type: ignore[import-not-found,unused-ignore]

    from warpfactor.cohort.template.average import sharpness_per_mm

    images = [ants.image_read(str(member.image)) for member in study.members]
    with measured() as used:
        found = ants.build_template(image_list=images, iterations=study.iterations)
    path, place = study.folder / "ants_template.nii.gz", study.folder / "to_ants_template"
    ants.image_write(found, str(path))
    rows = [{"name": m.name, "fixed": path, "moving": m.image, "moving_labels": m.labels} for m in study.members]
    wf.cohort.run(rows, place, recipe=study.recipe, options=study.options, engine=study.engine)
    return {
        "pairs": all_pairs(_warped(place, study.members), wanted),
        "sharpness": sharpness_per_mm(wf.read_image(path)),
        **_times(used),
    }


def mean_dice(first: Tensor, second: Tensor, wanted: Sequence[int]) -> float:
    """Mean Dice over labels; 0 for one that a map lacks."""
    per_label = wf.measure.dice(first, second)
    return sum(per_label.get(label, 0.0) for label in wanted) / len(wanted)


def all_pairs(maps: Mapping[str, Tensor], wanted: Sequence[int]) -> float:
    """Mean Dice over all pairs of label maps of one space."""
    scores = [mean_dice(maps[a], maps[b], wanted) for a, b in itertools.combinations(sorted(maps), 2)]
    return sum(scores) / len(scores)


def _warped(folder: Path, members: Sequence[Member]) -> dict[str, Tensor]:
    return {member.name: wf.read_labels(folder / member.name / WARPED_LABELS).data[0] for member in members}


def _times(used: ResourceUse) -> dict[str, float]:
    return {"processor seconds": used.cpu_s, "seconds": used.wall_s}


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern)
    return sorted(path.parent.glob(path.name))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="pattern of the images; a name ends at the first _ or .")
    parser.add_argument("--labels", required=True, help="pattern of their label maps")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--spacing", type=float, help="resample to this spacing in mm before")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS, help="what is measured (default: all but ants)")
    given = parser.parse_args()
    members = gather(given.images, given.labels)
    if given.spacing is not None:
        members = tuple(coarser(member, given.output / "images", given.spacing) for member in members)
    study = GroupStudy(members, given.output, given.iterations, given.recipe, EngineSettings(workers=given.workers))
    wanted = study.common()
    about = {"images": len(members), "labels": len(wanted)}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "template": lambda: through_template(study, wanted),
        "reversed": lambda: in_reverse(study),
        "leave-one-out": lambda: leave_one_out(study, wanted),
        "ants": lambda: ants_template(study, wanted),
    }
    for name in given.part or PARTS[:-1]:
        found = {**about, **parts[name]()}
        _say(json.dumps({name: found}, indent=1))
        (given.output / f"{name}.json").write_text(json_text(found), encoding="utf-8")


if __name__ == "__main__":
    main()

"""What guides a registration, as options of the command line, and the terms that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import warpfactor as wf
from warpfactor.cli.options import PAIR, parse_whole_numbers
from warpfactor.errors import InputError

_T = TypeVar("_T")

PairFiles = Annotated[
    list[Path] | None,
    typer.Option(
        PAIR,
        metavar="FIXED MOVING",
        help="Two further images of the same subjects, registered together with the first two. Can be repeated.",
    ),
]
PairMetric = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Metric of a further pair: lncc, mse, mi, mind or mixed (default: lncc). Give one for each --pair, in the "
        "same order. If one more is given, the first one is the metric of FIXED and MOVING.",
    ),
]
PairWeight = Annotated[
    list[float] | None,
    typer.Option(
        "--weight",
        metavar="NUMBER",
        help="Weight of a further pair (default: 1). Give one for each --pair, in the same order. If one more is "
        "given, the first one is the weight of FIXED and MOVING.",
    ),
]
TermWeights = Annotated[
    list[str] | None,
    typer.Option(
        "--term",
        metavar="NAME=WEIGHT",
        help="Regularisation term, bending or volume, with its weight, for instance bending=0.3. Can be repeated.",
    ),
]
LabelsWeight = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        help="Weight of the label maps in the cost of the deformable stage. With 0 the overlap is only measured; with "
        "1 the labels have about as much influence as the images.",
    ),
]
LabelValues = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS", help="Labels to use in the cost, for instance 17,53 (default: all that both maps have)."
    ),
]


@dataclass(frozen=True)
class GivenPairs:
    """The pairs of images on the command line.

    Attributes:
        further: the pairs besides FIXED and MOVING.
        metric: of FIXED and MOVING, by name; None is that of the recipe.
        weight: of FIXED and MOVING.
    """

    further: tuple[wf.ImagePair, ...]
    metric: str | None
    weight: float


def parse_pairs(
    files: Sequence[Path] | None, metrics: Sequence[str] | None, weights: Sequence[float] | None
) -> GivenPairs:
    """The pairs of options that are given in the same order."""
    given = list(files or ())
    both = list(zip(given[::2], given[1::2], strict=True))
    first, names = _in_order(metrics, len(both), "--metric", None, "lncc")
    weight, numbers = _in_order(weights, len(both), "--weight", 1.0, 1.0)
    rows = zip(both, names, numbers, strict=True)
    further = tuple(wf.ImagePair(fixed, moving, name, number) for (fixed, moving), name, number in rows)
    return GivenPairs(further, first, weight)


def _in_order(given: Sequence[_T] | None, pairs: int, option: str, first: Any, other: _T) -> tuple[Any, list[_T]]:
    """What is meant for FIXED and MOVING, and for each further pair."""
    values = list(given or ())
    if not values:
        return first, [other] * pairs
    if len(values) == pairs + 1:
        return values[0], values[1:]
    if len(values) == pairs:
        return first, values
    raise InputError(
        f"{option} was given {len(values)} times and {PAIR} {pairs} times; give one {option} for each {PAIR}, or "
        "one more, which comes first and is for FIXED and MOVING."
    )


def parse_terms(entries: Sequence[str] | None) -> tuple[wf.Weighted, ...]:
    """Weighted terms of the warp from texts NAME=WEIGHT."""
    from warpfactor.terms import REGULARITY

    found = []
    for entry in entries or ():
        name, _, text = entry.partition("=")
        try:
            found.append(wf.Weighted(REGULARITY[name.strip()](), float(text)))
        except (KeyError, ValueError):
            known = " or ".join(f"{known}=0.3" for known in REGULARITY)
            raise InputError(f"--term {entry}: write NAME=WEIGHT, for instance {known}.") from None
    return tuple(found)


def parse_labels(
    fixed: Path | None, moving: Path | None, weight: float, values: str | None
) -> tuple[wf.LabelPair, ...]:
    """The label maps that guide; none if they are only scored."""
    if weight == 0:
        if values is not None:
            raise InputError(f"--label-values {values} has no effect without --labels-weight; give a weight above 0.")
        return ()
    if fixed is None or moving is None:
        raise InputError(
            f"--labels-weight {weight:g} needs both label maps; give --fixed-labels FILE and --moving-labels FILE."
        )
    return (wf.LabelPair(fixed, moving, parse_whole_numbers(values, "--label-values"), weight),)

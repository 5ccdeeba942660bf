"""`warpfactor register`: two files in; transform, inverse and warped image out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import warpfactor as wf
from warpfactor.cli import show
from warpfactor.cli.options import Force, Json, Quiet, parse_numbers, parse_settings
from warpfactor.errors import InputError

INTERRUPTED = 130


def command(  # noqa: PLR0913 - one argument per option
    fixed: Annotated[
        Path, typer.Argument(metavar="FIXED", help="Fixed image: a file, or a folder with one DICOM series.")
    ],
    moving: Annotated[
        Path, typer.Argument(metavar="MOVING", help="Moving image, which is carried onto the fixed one.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.", show_default=False)
    ],
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe", metavar="RECIPE", help="Name (see `warpfactor recipes`), .toml, .json, or a result.json."
        ),
    ] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a setting, e.g. deformable.sigma_grad=1.0; repeatable."
        ),
    ] = None,
    fixed_mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the fixed image counts (not zero).")
    ] = None,
    moving_mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the moving image counts (not zero).")
    ] = None,
    moving_labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Label map to carry along, onto the fixed grid.")
    ] = None,
    fixed_labels: Annotated[
        Path | None,
        typer.Option("--fixed-labels", "--labels", metavar="FILE", help="Label map to score the carried one against."),
    ] = None,
    initial: Annotated[
        list[str] | None,
        typer.Option("--initial", metavar="FILE", help="Transform to start from, fixed to moving; as apply's -t."),
    ] = None,
    fixed_channel: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another channel of the fixed image.")
    ] = None,
    moving_channel: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another channel of the moving image.")
    ] = None,
    channel_weights: Annotated[str | None, typer.Option(metavar="NUMBERS", help="One per channel, e.g. 1,0.5.")] = None,
    outside: Annotated[
        float, typer.Option(metavar="NUMBER", help="Value of the warped image where there is no moving image.")
    ] = 0.0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    backend: Annotated[str, typer.Option(metavar="NAME", help="Kernels: auto, cpu or reference.")] = "auto",
    threads: Annotated[int | None, typer.Option(metavar="COUNT", help="At most so many; all without.")] = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Of random numbers.")] = 0,
    keep_interrupted: Annotated[
        bool, typer.Option("--keep-interrupted", help="On Ctrl-C write the best result so far instead of nothing.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Register MOVING to FIXED and write transform, inverse, warped image and result.json into a folder."""
    from warpfactor.io.folder import check_folder

    check_folder(output, force=force)
    labels = _Labels.read(fixed_labels, moving_labels)
    show.announce_compilation(quiet=quiet or as_json)
    with show.progress(quiet=quiet, as_json=as_json) as progress:
        found = wf.register(
            [fixed, *(fixed_channel or ())] if fixed_channel else fixed,
            [moving, *(moving_channel or ())] if moving_channel else moving,
            recipe=recipe,
            overrides=parse_settings(settings),
            fixed_mask=fixed_mask,
            moving_mask=moving_mask,
            initial=initial or None,
            channel_weights=parse_numbers(channel_weights, "--channel-weights"),
            outside=outside,
            device=device,
            backend=backend,
            threads=threads,
            seed=seed,
            progress=progress,
            keep_interrupted=keep_interrupted,
        )
    scores = labels.save(found, output, force=force)
    _report(found, scores, output, quiet=quiet, as_json=as_json)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)


class _Labels:
    """The label maps of a run; either may be missing."""

    def __init__(self, fixed: wf.Image | None, moving: wf.Image | None) -> None:
        self.fixed, self.moving = fixed, moving

    @classmethod
    def read(cls, fixed: Path | None, moving: Path | None) -> _Labels:
        if fixed is not None and moving is None:
            raise InputError("--fixed-labels scores carried labels; give --moving-labels too.")
        maps = [None if path is None else wf.read_labels(path) for path in (fixed, moving)]
        for image in maps:
            if image is not None and not bool(image.data.any()):
                raise InputError(f"{image.name}: the label map is empty; at least one voxel must have a label.")
        return cls(*maps)

    def save(self, found: wf.Registration, output: Path, *, force: bool) -> dict[str, Any]:
        """Write the result with the carried labels and return their scores."""
        from warpfactor.io.folder import atomic_folder
        from warpfactor.register.result import OWN, WARPED_LABELS

        carried = None if self.moving is None else found.apply(self.moving, mode="label")
        scores = {} if carried is None else self._scores(found, carried)
        with atomic_folder(output, force=force, own=OWN) as place:
            extra = {"command": sys.argv[1:], **({"labels": scores} if scores else {})}
            found.write_into(place, extra=extra)
            if carried is not None:
                wf.write_image(carried, place / WARPED_LABELS)
        return scores

    def _scores(self, found: wf.Registration, carried: wf.Image) -> dict[str, Any]:
        if self.fixed is None or self.moving is None:
            return {}
        truth = self.fixed.on_grid(found.fixed_grid).data[0]
        before = wf.Affine().resample(self.moving, found.fixed_grid, mode="label").data[0]
        after = wf.quality.dice_figures(truth, carried.data[0])
        return {
            "dice_mean_before": wf.quality.dice_figures(truth, before).mean,
            "dice_mean_after": after.mean,
            "dice_per_label_after": after.per_label,
        }


def _report(found: wf.Registration, scores: dict[str, Any], output: Path, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        entries = found.to_dict()
        kept = ("status", "interrupted", "figures", "seconds", "peak_memory_mb")
        result = {"event": "result", "output": str(output), **{key: entries[key] for key in kept}}
        show.print_json(result | ({"labels": scores} if scores else {}))
    elif not quiet:
        typer.echo(show.summary(found, output, scores))

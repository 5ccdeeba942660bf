"""The option --ranks, and processes that torchrun started."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from warpfactor.errors import InputError


def _share(context: typer.Context, count: int | None) -> Any:  # int or Ranks; Typer evaluates what stands here
    """Who shares the command; a process that torchrun started besides the first one helps that one, and ends."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # as torch.distributed asks; importing that takes a second
        return 1 if count is None else count
    if count is not None:
        raise InputError(f"The number of ranks is set by torchrun; leave out --ranks {count}.")
    from warpfactor.ranks.crew import Ranks

    ranks = context.with_resource(Ranks.torchrun())
    if ranks.is_first:
        return ranks
    ranks.follow()
    raise typer.Exit


RankCount = Annotated[
    int | None,  # the callback makes Ranks of it where torchrun started the command
    typer.Option(
        "--ranks",
        metavar="COUNT",
        help="Number of processes of this machine that share the deformable stage; the result is bit-identical. For "
        "several machines, start the command with torchrun.",
        callback=_share,
    ),
]

"""`warpfactor bench gpu`: what the GPU kernels compile to, what they move, and what that predicts; needs no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpfactor.errors import InputError


def command(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the tables.", show_default=False),
    ],
    targets: Annotated[
        str, typer.Option(metavar="LIST", help="Processors to compile for, a selection of sm_80, sm_86, sm_90, gfx942.")
    ] = "sm_80,sm_86,sm_90,gfx942",
) -> None:
    """Compile every GPU kernel ahead of time, and predict an iteration from the bytes that kernels declare.

    It writes gpu.md, gpu.json and CSV files: registers, shared memory and spills of every kernel, bytes per voxel of an
    iteration, and predicted times and memory. Nothing runs on a GPU, and none is needed. Example:
    warpfactor bench gpu -o results
    """
    try:
        from warpfactor.bench.gpu.compile import compile_all
        from warpfactor.bench.gpu.tables import compiled_table, prediction_table, traffic_table
    except ImportError as error:
        raise InputError(f"The GPU kernels need the package triton ({error}); install it with pip.") from error
    from warpfactor.bench.score.tables import to_markdown, write_tables

    chosen = [each.strip() for each in targets.split(",")]
    typer.echo(f"Compiling for {', '.join(chosen)}, which takes about half a minute each.", err=True)
    tables = [compiled_table(compile_all(chosen), chosen), traffic_table(), prediction_table()]
    output.mkdir(parents=True, exist_ok=True)
    written = write_tables(tables, output, "gpu")
    for table in tables:
        typer.echo(to_markdown(table))
    typer.echo("\n".join(str(path) for path in written))

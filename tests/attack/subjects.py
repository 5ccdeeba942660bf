"""What the attack damages: a good file or folder of every format, how it is read, and the commands that take it."""

import contextlib
import importlib.util
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import warpfactor as wf
from warpfactor.cli.app import main as command_line
from warpfactor.geometry.itk import sitk
from warpfactor.registration.folder import read_entries

SHAPE = (5, 6, 7)
OFTEN, SELDOM, RARELY, HARDLY = 40.0, 3.0, 1.0, 0.3  # how often a subject is drawn: by what one case costs
CHECKSUMS = (".nii.gz", ".png", ".packed.mha", ".nrrd")
IMAGES = (".nii", ".nii.gz", ".mha", ".packed.mha", ".nrrd", ".png", ".jpg", ".bmp", ".tif")
TRANSFORMS = (".tfm", ".mat", ".warp.nii", ".h5")
WHOLE = (*IMAGES, *TRANSFORMS, "DICOM folder", ".ome.zarr")  # formats in which a truncation can be told
USAGE, ROWS = 2, 3  # exit codes of a command that refuses its input, and of one that was refused some of it
QUICK = ("--set", "linear.starts=identity", "--set", "deformable.iterations=3,2,1")


class Subject(NamedTuple):
    """Something that can be damaged.

    Attributes:
        seed: the good file or folder.
        read: takes a damaged one in; a WarpfactorError refuses it.
        weight: how often it is drawn.
        name: under which the damaged one is placed.
    """

    seed: Path
    read: Callable[[Path], Any]
    weight: float
    name: str


class RefusedError(wf.WarpfactorError):
    """A command ended with a sentence and the exit code of a wrong input."""

    code = "refused"


def write_subjects(folder: Path, *, workers: bool) -> dict[str, Subject]:
    """One good file of every format, and every command that takes files, by what its name ends in.

    Args:
        workers: with commands that start worker processes, which take seconds.
    """
    files = write_files(folder)
    readers = {suffix: Subject(path, reader_of(suffix), OFTEN, f"x{suffix}") for suffix, path in files.items()}
    readers["result.json"] = readers["result.json"]._replace(name="result.json")
    slow = {
        ".h5": Subject(_composite(folder), wf.read_transform, RARELY, "x.h5"),
        "DICOM folder": Subject(_dicom(folder), wf.read_image, RARELY, "scan"),
    }
    found = {**readers, **slow, **_zarr(folder), **command_subjects(folder, files)}
    with_workers = workers and importlib.util.find_spec("distributed") is not None
    return {**found, **worker_subjects(folder)} if with_workers else found


def write_files(folder: Path) -> dict[str, Path]:
    """One good file of every format that is read in this process."""
    made = {}
    for suffix in (".nii", ".nii.gz", ".nrrd", ".png", ".jpg", ".bmp", ".tif"):
        shape = SHAPE[1:] if suffix in (".png", ".jpg", ".bmp") else SHAPE
        data = torch.arange(int(np.prod(shape)), dtype=torch.uint8).reshape(shape)
        made[suffix] = folder / f"seed{suffix}"
        wf.write_image(wf.Image(data.reshape(1, -1, *shape[-2:]), wf.Grid.from_spacing(shape, 2.0)), made[suffix])
    image = sitk.GetImageFromArray(np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE))
    for suffix in (".mha", ".packed.mha"):
        made[suffix] = folder / f"seed{suffix}"
        sitk.WriteImage(image, str(made[suffix]), suffix == ".packed.mha")
    grid = wf.Grid.from_spacing(SHAPE)
    for suffix, transform in ((".tfm", wf.Affine()), (".mat", wf.Affine()), (".warp.nii", None)):
        made[suffix] = folder / f"seed{suffix}"
        wf.write_transform(transform or wf.Warp(torch.zeros((3, *SHAPE)), grid), made[suffix])
    made[".csv"] = folder / "seed.csv"
    made[".csv"].write_text("x,y,z,label\n1.5,2,3,a\n-4,5e1,6,b\n")
    made[".toml"], made[".json"] = folder / "seed.toml", folder / "seed.json"
    made[".toml"].write_text(wf.recipe("default").to_toml())
    made[".json"].write_text(json.dumps(wf.recipe("brain").to_dict()))
    made["result.json"] = folder / "seed" / "result.json"
    made["result.json"].parent.mkdir()
    made["result.json"].write_text(json.dumps(result_entries(grid)))
    return made


def result_entries(grid: wf.Grid) -> dict[str, Any]:
    """What a result.json must have to be read."""
    side = {
        "name": "image",
        "shape_zyx": list(grid.shape),
        "index_zyx_to_world_lps_mm": grid.matrix.tolist(),
        "dimension": grid.ndim,
    }
    files = {"fixed_to_moving_warp_before_affine_lps_mm": "1Warp.nii.gz"}
    return {"format": 2, "fixed": side, "moving": side, "files": files}


def reader_of(suffix: str) -> Callable[[Path], Any]:
    if suffix in IMAGES:
        return wf.read_image
    if suffix in (".tfm", ".mat", ".warp.nii"):
        return wf.read_transform
    if suffix == ".csv":
        return wf.io.read_points
    return (lambda path: read_entries(path.parent)) if suffix == "result.json" else wf.recipe


def _composite(folder: Path) -> Path:
    path, grid = folder / "seed.h5", wf.Grid.from_spacing(SHAPE)
    wf.write_transform(wf.Chain((wf.Warp(torch.zeros((3, *SHAPE)), grid), wf.Affine())), path)
    return path


def _dicom(folder: Path) -> Path:
    """A series of three slices."""
    place = folder / "seed scan"
    place.mkdir()
    for number in range(3):
        image = sitk.GetImageFromArray(np.full((1, 6, 7), number, dtype=np.int16))
        tags = {"0008|0060": "MR", "0020|000d": "1.2.3", "0020|000e": "1.2.3.4", "0020|0013": str(number)}
        tags |= {"0020|0032": f"0\\0\\{2.5 * number}", "0020|0037": "1\\0\\0\\0\\1\\0"}
        for tag, value in tags.items():
            image.SetMetaData(tag, value)
        writer = sitk.ImageFileWriter()
        writer.KeepOriginalImageUIDOn()
        writer.SetFileName(str(place / f"{number}.dcm"))
        writer.Execute(image)
    return place


def _zarr(folder: Path) -> dict[str, Subject]:
    """An OME-Zarr folder, if zarr is installed."""
    path = folder / "seed.ome.zarr"
    try:
        wf.write_image(wf.Image(torch.arange(210.0).reshape(1, *SHAPE), wf.Grid.from_spacing(SHAPE, 2.0)), path)
    except wf.WarpfactorError:
        return {}
    return {".ome.zarr": Subject(path, wf.read_image, SELDOM, "x.ome.zarr")}


def command_subjects(folder: Path, files: dict[str, Path]) -> dict[str, Subject]:
    """Commands whose input is damaged."""
    result, fixed, moving = _result(folder), str(folder / "fixed.nii.gz"), str(folder / "moving.nii.gz")
    image, warp, matrix = (str(files[suffix]) for suffix in (".nii.gz", ".warp.nii", ".mat"))
    output = ("-o", str(folder / "out.nii.gz"), "--force", "--quiet")
    whole = ("-o", str(folder / "out.folder"), "--force", "--quiet", "--no-report", *QUICK)
    through = ("-t", warp, "-t", matrix)
    files |= _more_files(folder)

    def takes(suffix: str, weight: float, *arguments: str) -> Subject:
        return Subject(files[suffix], _command(folder, arguments), weight, f"x{suffix}")

    def of_result(weight: float, *arguments: str) -> Subject:
        return Subject(result, _command(folder, arguments), weight, "result")

    return {
        "apply IMAGE": takes(".nii", SELDOM, "apply", "{}", *through, "-r", image, *output),
        "apply POINTS": takes(".csv", SELDOM, "apply", "{}", *through, "-o", str(folder / "out.csv"), "--force"),
        "apply -t WARP": takes(".warp.nii", SELDOM, "apply", image, "-t", "{}", "-r", image, *output),
        "jacobian -t WARP": takes(".warp.nii", SELDOM, "jacobian", "-t", "{}", *output),
        "invert -t WARP": takes(".warp.nii", SELDOM, "invert", "-t", "{}", *output),
        "compose -t AFFINE": takes(".mat", SELDOM, "compose", "-t", warp, "-t", "{}", "-r", image, *output),
        "evaluate LABELS": takes(".nii", SELDOM, "evaluate", "--fixed-labels", "{}", "--moving-labels", image),
        "evaluate LANDMARKS": takes(".pairs.csv", SELDOM, "evaluate", "--landmarks", "{}", "-t", matrix),
        "recipes show": takes(".toml", SELDOM, "recipes", "show", "{}"),
        "datasets --check": takes(".table.csv", SELDOM, "datasets", "--check", "{}"),
        "apply --result": of_result(SELDOM, "apply", image, "--result", "{}", *output),
        "evaluate --result": of_result(RARELY, "evaluate", "--result", "{}"),
        "register FIXED": takes(".slice.nii", RARELY, "register", "{}", moving, *whole),
        "register --fixed-mask": takes(".mask.nii", RARELY, "register", fixed, moving, "--fixed-mask", "{}", *whole),
        "register --initial": takes(".plane.mat", RARELY, "register", fixed, moving, "--initial", "{}", *whole),
        "register --landmarks": takes(".pairs.csv", RARELY, "register", fixed, moving, "--landmarks", "{}", *whole),
        "longitudinal SCAN": takes(".slice.nii", HARDLY, "longitudinal", "{}", moving, *whole),
        "report": of_result(RARELY, "report", "{}", "--force", "--quiet"),
        "summary": of_result(RARELY, "summary", "{}", "-o", str(folder / "out.html"), "--force", "--quiet"),
        "morphometry TABLE": Subject(
            _people(folder, result),
            _command(folder, ("morphometry", str(folder / "group"), "{}", "--effect", "group", *output[:-1])),
            RARELY,
            "x.csv",
        ),
    }


def worker_subjects(folder: Path) -> dict[str, Subject]:
    """Commands that run registrations in worker processes; `command_subjects` has written what they need."""
    fixed, moving = folder / "fixed.nii.gz", folder / "moving.nii.gz"
    atlases = folder / "atlases.csv"
    labels = folder / "seed.mask.nii"
    atlases.write_text(f"image,labels\n{fixed},{labels}\n{moving},{labels}\n")
    output = ("-o", str(folder / "out.folder"), "--workers", "1", "--quiet", *QUICK)

    def takes(seed: Path, name: str, *arguments: str) -> Subject:
        return Subject(seed, _command(folder, (*arguments, *output), resumes=True), HARDLY, name)

    return {
        "cohort TABLE": takes(folder / "seed.table.csv", "x.csv", "cohort", "{}"),
        "cohort IMAGE": takes(folder / "seed.slice.nii", "x.nii", "cohort", "{}", "--template", str(fixed)),
        "template IMAGE": takes(folder / "seed.slice.nii", "x.nii", "template", "{}", str(moving), "--iterations", "1"),
        "segment IMAGE": takes(folder / "seed.slice.nii", "x.nii", "segment", "{}", "--atlases", str(atlases)),
        "segment --atlases": takes(atlases, "x.csv", "segment", str(fixed), "--atlases", "{}"),
    }


def _more_files(folder: Path) -> dict[str, Path]:
    """Files that only commands take: a slice, its mask, an affine in its plane, pairs of points and a table."""
    image = wf.read_image(folder / "fixed.nii.gz")
    made = {name: folder / f"seed{name}" for name in (".slice.nii", ".mask.nii", ".plane.mat", ".pairs.csv")}
    wf.write_image(image, made[".slice.nii"])
    wf.write_image(wf.Image((image.data > image.data.mean()).to(torch.uint8), image.grid), made[".mask.nii"])
    wf.write_transform(wf.Affine(dimension=2), made[".plane.mat"])
    made[".pairs.csv"].write_text("fixed_x,fixed_y,moving_x,moving_y\n8,9.5,8,10\n20,12,21,12\n")
    made[".table.csv"] = folder / "seed.table.csv"
    made[".table.csv"].write_text(
        f"name,fixed,moving\na,{folder / 'fixed.nii.gz'},{folder / 'moving.nii.gz'}\n"
        f"b,{folder / 'moving.nii.gz'},{folder / 'fixed.nii.gz'}\n"
    )
    return made


def _people(folder: Path, result: Path) -> Path:
    """A table of six people; their results are copies of one."""
    lines = ["name,group,age"]
    for number in range(6):
        shutil.copytree(result, folder / "group" / "subjects" / f"sub{number}")
        lines.append(f"sub{number},{'ab'[number % 2]},{50 + number}")
    path = folder / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _result(folder: Path) -> Path:
    """A result folder with its images beside it."""
    made = wf.phantom.phantom((1, 20, 22), displacement_vox=0.5)
    for name, data in (("fixed", made.fixed), ("moving", made.moving)):
        wf.write_image(wf.Image(data[None], wf.Grid.from_spacing((20, 22), 2.0)), folder / f"{name}.nii.gz")
    settings = {"linear.starts": ["identity"], "deformable.iterations": [3, 2, 1]}
    recipe = wf.recipe("default").replace(settings)
    found = wf.register(folder / "fixed.nii.gz", folder / "moving.nii.gz", recipe=recipe, threads=1)
    return found.save(folder / "seed result")


def _command(folder: Path, arguments: tuple[str, ...], *, resumes: bool = False) -> Callable[[Path], Any]:
    """A command on a damaged input; it raises what the command line does not turn into a sentence.

    Args:
        resumes: the command keeps a folder that another run continues, whatever its end.
    """

    def run(path: Path) -> None:
        before = {entry.name for entry in folder.iterdir()}
        said, code = io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                command_line([each.replace("{}", str(path)) for each in arguments])
            except SystemExit as end:
                code = int(end.code or 0)
        left = {entry.name for entry in folder.iterdir()} - before
        outputs = {name for name in left if name.startswith("out.")}
        for name in left:
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
        if left - outputs or (code and outputs and not resumes):
            raise AssertionError(f"it left {sorted(left)} behind, exit code {code}")
        if code == USAGE or (code == ROWS and resumes):
            raise RefusedError((said.getvalue().strip() or "rows failed, and it is quiet").splitlines()[-1])
        if code:
            raise AssertionError(f"exit code {code}: {said.getvalue()[-300:]}")

    return run

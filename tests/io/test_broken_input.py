"""Broken input gives one clear sentence on stderr and exit code 2, and leaves nothing behind."""

import errno
import gzip
import os
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from small import GRID, LINEAR, QUICK_OPTIONS, pair, write_pair
from warpfactor.cli.app import app
from warpfactor.geometry.itk import sitk
from warpfactor.registration import folder as result_folder

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """The files every case starts from, and a result."""
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    found = wf.register(folder / "fixed.nii.gz", folder / "moving.nii.gz", recipe="rigid", overrides=LINEAR)
    found.save(folder / "result")
    return folder


@pytest.fixture
def files(pristine, tmp_path):
    """A folder of its own with links to the files, to break things in."""
    for path in pristine.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def refuse(folder, arguments, sentence):
    """Run a command in `folder`; it must end with code 2, one line that contains `sentence`, and no new file."""
    before = sorted(folder.rglob("*"))
    done = RUNNER.invoke(app, [str(part) for part in arguments], catch_exceptions=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("warpfactor: ")]
    assert done.exit_code == 2, done.output
    assert len(lines) == 1
    assert done.stderr.splitlines()[-1] == lines[0]
    assert sentence in lines[0]
    assert "Traceback" not in done.output
    assert sorted(folder.rglob("*")) == before


def register(folder, *options, fixed="fixed.nii.gz", moving="moving.nii.gz", output="out"):
    return ["register", folder / fixed, folder / moving, "-o", folder / output, *QUICK_OPTIONS, *options]


def apply(folder, *options, source="moving.nii.gz", output="x.nii.gz", result="result"):
    return ["apply", folder / source, "-o", folder / output, "--result", folder / result, *options]


def write(folder, name, data, grid=GRID):
    wf.write_image(wf.Image(data[None], grid), folder / name)


def header(folder, name, offset, content):
    """A copy of the moving image, unpacked, with some bytes of its header changed."""
    raw = bytearray(gzip.decompress((folder / "moving.nii.gz").read_bytes()))
    raw[offset : offset + len(content)] = content
    (folder / name).write_bytes(raw)


def missing(folder):
    return register(folder, moving="nowhere.nii.gz"), "nowhere.nii.gz: there is no such file"


def truncated(folder):
    whole = (folder / "moving.nii.gz").read_bytes()
    (folder / "half.nii.gz").write_bytes(whole[: len(whole) // 2])
    return register(folder, moving="half.nii.gz"), "half.nii.gz: is truncated, "


def without_end(folder):
    (folder / "end.nii.gz").write_bytes((folder / "moving.nii.gz").read_bytes()[:-3])
    return register(folder, moving="end.nii.gz"), "end.nii.gz: is truncated, "


def text(folder):
    (folder / "text.nii.gz").write_text("not an image at all, only words")
    return register(folder, moving="text.nii.gz"), "text.nii.gz: is not a NIfTI file"


def empty_file(folder):
    (folder / "empty.nii.gz").touch()
    return register(folder, moving="empty.nii.gz"), "empty.nii.gz"


def foreign_text(folder):
    (folder / "words.nrrd").write_text("words")
    return register(folder, moving="words.nrrd"), "words.nrrd: cannot be read as an image"


def series(folder):
    volume = wf.read_image(folder / "moving.nii.gz")
    wf.io.write_series([volume, volume], folder / "series.nii.gz")
    return register(folder, moving="series.nii.gz"), "is a 4-D image with 2 volumes"


def complex_values(folder):
    sitk.WriteImage(sitk.Cast(sitk.Image(8, 8, 8, sitk.sitkFloat32), sitk.sitkComplexFloat32), folder / "c.nii.gz")
    return register(folder, moving="c.nii.gz"), "complex values"


def no_dicom(folder):
    (folder / "scans").mkdir()
    return register(folder, moving="scans"), "holds no DICOM series"


def zero_spacing(folder):
    header(folder, "flat.nii", 80, struct.pack("<f", 0.0))
    return register(folder, moving="flat.nii"), "the voxel spacing is 0 x 1.5 x 1.5 mm"


def flat_sform(folder):
    header(folder, "singular.nii", 252, struct.pack("<2h", 0, 1) + bytes(24) + struct.pack("<12f", *[0.0] * 12))
    return register(folder, moving="singular.nii"), "singular.nii: The voxel spacing 0 x 0 x 0 must be positive"


def mismatched_mask(folder):
    write(folder, "small.nii.gz", torch.ones((8, 8, 8), dtype=torch.uint8), wf.Grid.from_spacing((8, 8, 8)))
    return register(folder, "--fixed-mask", folder / "small.nii.gz"), "does not lie on the grid of its image"


def empty_mask(folder):
    write(folder, "none.nii.gz", torch.zeros(GRID.shape, dtype=torch.uint8))
    return register(folder, "--moving-mask", folder / "none.nii.gz"), "the mask is empty"


def empty_labels(folder):
    write(folder, "none.nii.gz", torch.zeros(GRID.shape, dtype=torch.int32))
    return register(folder, "--moving-labels", folder / "none.nii.gz"), "the label map is empty"


def labels_that_are_none(folder):
    return register(folder, "--moving-labels", folder / "fixed.nii.gz"), "is not a label map"


def lonely_labels(folder):
    return register(folder, "--labels", folder / "fixed_labels.nii.gz"), "give moving labels (--moving-labels) too"


def all_nan(folder):
    write(folder, "nan.nii.gz", torch.full(GRID.shape, torch.nan))
    return register(folder, moving="nan.nii.gz"), "there is no voxel with a finite value; all are NaN or infinite"


def nan_where_it_counts(folder):
    write(folder, "nan.nii.gz", torch.full(GRID.shape, torch.nan))
    mask = ("--moving-mask", folder / "mask.nii.gz")
    return register(folder, *mask, moving="nan.nii.gz"), "there is no voxel with a finite value inside its mask"


def constant(folder):
    write(folder, "same.nii.gz", torch.full(GRID.shape, 7.0))
    return register(folder, moving="same.nii.gz"), "is constant (7)"


def slice_to_volume(folder):
    write(folder, "slice.nii.gz", pair().fixed[:1], wf.Grid.from_spacing((1, *GRID.shape[1:])))
    return register(folder, moving="slice.nii.gz"), "a slice cannot be registered to a volume"


def tiny(folder):
    write(folder, "tiny.nii.gz", torch.rand((2, 2, 2)), wf.Grid.from_spacing((2, 2, 2)))
    return register(folder, moving="tiny.nii.gz"), "at least 4 along every axis"


def far_away(folder):
    shift = np.eye(4)
    shift[0, 3] = 1000.0
    wf.write_transform(wf.Affine(shift), folder / "far.mat")
    return register(folder, "--initial", folder / "far.mat"), "overlap"


def channel_without_partner(folder):
    return register(folder, "--fixed-channel", folder / "mask.nii.gz"), "channels"


def unknown_recipe(folder):
    return register(folder, "--recipe", "brian"), "Unknown recipe 'brian'; did you mean 'brain'"


def broken_recipe(folder):
    (folder / "mine.toml").write_text("deformable = [")
    return register(folder, "--recipe", folder / "mine.toml"), "mine.toml: cannot be read as a recipe"


def unknown_metric(folder):
    return register(folder, "--set", "deformable.metric=lnnc"), "Unknown metric 'lnnc'; did you mean 'lncc'"


def metric_of_another_stage(folder):
    return register(folder, "--set", "deformable.metric=ncc"), "deformable takes lncc, mse, mi"


def unknown_linear_metric(folder):
    return register(folder, "--set", "linear.metric=nccc"), "Unknown metric 'nccc'; use one of lncc, ncc, mi, mse"


def levels_alone(folder):
    images = (folder / "fixed.nii.gz", folder / "moving.nii.gz")
    arguments = ["register", *images, "-o", folder / "out", "--set", "deformable.levels=3,1"]
    return arguments, "set both, for instance deformable.levels=3,1 and deformable.iterations="


def unknown_setting(folder):
    return register(folder, "--set", "deformable.sigma=1"), "Unknown setting of deformable 'sigma'; did you mean"


def wrong_value(folder):
    return register(folder, "--set", "deformable.step=far"), "deformable.step = 'far': give a number"


def negative_sigma(folder):
    sentence = "The setting deformable.sigma_grad = -1 must be 0 or a positive number."
    return register(folder, "--set", "deformable.sigma_grad=-1"), sentence


def no_step(folder):
    return register(folder, "--set", "deformable.step=0"), "The setting deformable.step = 0 must be a positive number."


def no_value(folder):
    return register(folder, "--set", "deformable.step"), "write NAME=VALUE"


def unknown_device(folder):
    return register(folder, "--device", "abacus"), "Device 'abacus' is unknown"


def unknown_backend(folder):
    return register(folder, "--backend", "fast"), "Unknown backend 'fast'"


def no_threads(folder):
    return register(folder, "--threads", "0"), "The number of threads must be at least 1, not 0"


def wrong_weights(folder):
    return register(folder, "--channel-weights", "a,b"), "numbers separated by commas"


def missing_transform(folder):
    return register(folder, "--initial", folder / "no.mat"), "no.mat: there is no such file"


def broken_transform(folder):
    (folder / "words.mat").write_text("words")
    return register(folder, "--initial", folder / "words.mat"), "words.mat: cannot be read as a transform"


def file_as_folder(folder):
    return register(folder, output="fixed.nii.gz"), "is a file; give the name of a folder"


def folder_below_file(folder):
    return register(folder, output="fixed.nii.gz/out"), "cannot be created"


def occupied_folder(folder):
    sentence = "the folder is not empty; choose another one, or replace it with --force (force=True)."
    return register(folder, output="result"), sentence


def apply_without_transform(folder):
    return [
        "apply",
        folder / "moving.nii.gz",
        "-o",
        folder / "x.nii.gz",
    ], "Give either a result folder (--result) or transform files"


def apply_without_grid(folder):
    affine = folder / "result" / "0GenericAffine.mat"
    return ["apply", folder / "moving.nii.gz", "-o", folder / "x.nii.gz", "-t", affine], "give an image of that space"


def apply_from_no_result(folder):
    (folder / "void").mkdir()
    return apply(folder, result="void"), "is not a result folder, because it contains no result.json"


def apply_to_nowhere(folder):
    return apply(folder, "--to", "atlas"), "Unknown space 'atlas'"


def apply_unknown_interpolation(folder):
    return apply(folder, "-n", "sinc"), "Unknown interpolation 'sinc'"


def apply_over_a_file(folder):
    sentence = "exists already; remove it, choose another name, or replace it with --force (force=True)."
    return apply(folder, output="mask.nii.gz"), sentence


def apply_to_unknown_format(folder):
    return apply(folder, output="x.abc"), "x.abc: cannot be written, no image format has this suffix; use .nii.gz"


def points_without_columns(folder):
    (folder / "points.csv").write_text("a,b\n1,2\n")
    return apply(folder, source="points.csv", output="x.csv"), "needs columns named x"


def evaluate_nothing(folder):
    return ["evaluate"], "There is nothing to evaluate"


def evaluate_one_map(folder):
    return ["evaluate", "--fixed-labels", folder / "fixed_labels.nii.gz"], "give both"


def evaluate_unknown_format(folder):
    return ["evaluate", "--format", "xml"], "Unknown format 'xml'"


def demo_of_two_axes(folder):
    return ["demo", "-o", folder / "demo", "--shape", "8,8"], "three numbers"


def demo_too_small(folder):
    return ["demo", "-o", folder / "demo", "--shape", "4,4,4"], "cannot be used"


CASES = [
    *(missing, truncated, without_end, text, empty_file, foreign_text, series, complex_values, no_dicom),
    *(zero_spacing, flat_sform, mismatched_mask, empty_mask, empty_labels, labels_that_are_none, lonely_labels),
    *(all_nan, nan_where_it_counts, constant, slice_to_volume, tiny, far_away, channel_without_partner),
    *(unknown_recipe, broken_recipe, unknown_metric, metric_of_another_stage, unknown_linear_metric, levels_alone),
    *(unknown_setting, wrong_value, negative_sigma, no_step, no_value, unknown_device, unknown_backend, no_threads),
    *(wrong_weights, missing_transform, broken_transform, file_as_folder, folder_below_file, occupied_folder),
    *(apply_without_transform, apply_without_grid, apply_from_no_result, apply_to_nowhere, apply_over_a_file),
    *(apply_unknown_interpolation, apply_to_unknown_format, points_without_columns),
    *(evaluate_nothing, evaluate_one_map, evaluate_unknown_format, demo_of_two_axes, demo_too_small),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_broken_input_gives_one_sentence_and_leaves_nothing(case, files):
    arguments, sentence = case(files)
    refuse(files, arguments, sentence)


@pytest.mark.parametrize("output", ["out", "there"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(files, monkeypatch, output):
    (files / "there").mkdir()
    make = Path.mkdir

    def refuse_trial(self, *arguments, **options):
        if self.name.endswith("-trial") and self.parent.name in (files.name, "there"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        make(self, *arguments, **options)

    def fail(*_, **__):
        raise AssertionError("the registration was started")

    monkeypatch.setattr(Path, "mkdir", refuse_trial)
    monkeypatch.setattr("warpfactor.registration.run.make_scene", fail)
    refuse(files, register(files, output=output), "is not writable (Read-only file system); choose another one")
    refuse(files, apply(files), "is not writable (Read-only file system); choose another one")


def test_a_message_names_the_file_and_not_its_temporary_twin(files, monkeypatch):
    def fail(image, name, **_):
        raise RuntimeError(f"ERROR: cannot open {name} for writing")

    monkeypatch.setattr(sitk, "WriteImage", fail)
    refuse(files, apply(files, output="x.nrrd"), f"cannot open {files / 'x.nrrd'} for writing")


@pytest.mark.parametrize("room", [200, 2000, 60000])
def test_a_full_disk_leaves_nothing(files, monkeypatch, room):
    """A limit on the size of files fails a write in the middle, as a full disk does."""
    write_volumes = result_folder._write_volumes

    def limited(result, place):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            write_volumes(result, place)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(result_folder, "_write_volumes", limited)
    refuse(files, register(files), "written")


def test_memory_that_runs_out_is_said(files, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr("warpfactor.registration.run.make_scene", full)
    refuse(files, register(files), "Out of memory; crop the images")

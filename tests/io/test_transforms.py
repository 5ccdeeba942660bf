"""Transform files: exact round trips, the names and order of ANTs, centres of rotation, broken files."""

import gzip
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest
import SimpleITK
import torch

from geometries import GRIDS, affine_about, noise, registration, smooth_warp
from warpfactor.errors import FileError, InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.transform import Affine, Chain, Warp
from warpfactor.io import (
    read_ants,
    read_image,
    read_transform,
    transforms,
    write_ants,
    write_image,
    write_series,
    write_transform,
)


@pytest.mark.parametrize("codes", [(1, 0), (0, 1), (1, 1), (1, 2), (2, 1), (2, 2)])
def test_a_field_of_one_slice_lies_where_an_image_with_its_header_does(codes: tuple[int, int], tmp_path: Path) -> None:
    grid = slice_grid("axial")
    write_transform(smooth_warp(grid), tmp_path / "field.nii")
    write_image(noise(grid, torch.Generator().manual_seed(0)), tmp_path / "image.nii")
    for name in ("field.nii", "image.nii"):
        raw = bytearray((tmp_path / name).read_bytes())
        struct.pack_into("<2h", raw, 252, *codes)
        struct.pack_into("<f", raw, 292, 40.0)  # the sform is somewhere else
        (tmp_path / name).write_bytes(raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = read_image(tmp_path / "image.nii")
        field = read_transform(tmp_path / "field.nii")
    assert isinstance(field, Warp)
    assert field.grid.same_space(image.grid)


def test_a_folder_is_no_transform(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder; give the files in it"):
        read_transform(tmp_path)


@pytest.mark.parametrize("name", ["oblique", "planar"])
@pytest.mark.parametrize("suffix", [".mat", ".tfm", ".txt", ".h5"])
def test_affine_files_are_exact(name: str, suffix: str, tmp_path: Path) -> None:
    affine = affine_about(GRIDS[name])
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    write_transform(affine, first)
    again = read_transform(first)
    assert isinstance(again, Affine) and again.ndim == affine.ndim
    np.testing.assert_array_equal(again.matrix, affine.matrix)
    write_transform(again, second)
    if suffix != ".h5":  # HDF5 writes the time into its files
        assert first.read_bytes() == second.read_bytes()


# Axes of the world along the (z, y, x) of a slice. ITK reads fields there as 2-D, and refuses the coronal one.
SLICES = {"axial": (2, 1, 0), "coronal": (1, 2, 0), "sagittal": (0, 2, 1)}


def slice_grid(name: str) -> Grid:
    """One slice somewhere in space."""
    if name == "oblique slice":
        return Grid((1, 7, 5), GRIDS["oblique"].matrix, 3)
    matrix = np.eye(4)[:, [*SLICES[name], 3]] @ np.diag([2.0, -1.5, 1.0, 1.0])
    matrix[:3, 3] = 5, -6, 7
    return Grid((1, 7, 5), matrix, 3)


@pytest.mark.parametrize("name", [*GRIDS, *SLICES, "oblique slice"])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".h5"])
def test_warp_files_are_exact(name: str, suffix: str, tmp_path: Path) -> None:
    warp = smooth_warp(GRIDS[name] if name in GRIDS else slice_grid(name))
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    write_transform(warp, first)
    again = read_transform(first)
    assert isinstance(again, Warp) and again.ndim == warp.ndim
    assert again.grid.same_space(warp.grid)
    torch.testing.assert_close(again.displacement.float(), warp.displacement, rtol=0, atol=5e-7)
    write_transform(again, second)
    if suffix != ".h5" and name != "coronal":
        np.testing.assert_array_equal(_values(first), _values(second))


def test_warp_is_a_nifti_vector_image_as_ants_writes(tmp_path: Path) -> None:
    write_transform(smooth_warp(GRIDS["oblique"]), tmp_path / "warp.nii.gz")
    image = nibabel.load(tmp_path / "warp.nii.gz")
    assert image.shape == (11, 13, 9, 1, 3)
    assert image.header.get_intent()[0] == "vector"
    assert image.get_data_dtype() == np.float32


@pytest.mark.parametrize("name", ["oblique", "planar"])
def test_chains_survive_the_round_trip(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    grid = GRIDS[name]
    chain = registration(grid)
    points = grid.index_to_world(rng.uniform(0, np.array(grid.shape) - 1, (20, 3)))
    write_transform(chain, tmp_path / "chain.h5")
    again = read_transform(tmp_path / "chain.h5")
    assert [type(part) for part in again.parts] == [Warp, Affine]
    np.testing.assert_allclose(again.map_points(points), chain.map_points(points), atol=1e-6)


def test_a_list_is_in_the_order_of_ants_apply_transforms(tmp_path: Path, rng: np.random.Generator) -> None:
    grid = GRIDS["left_handed"]
    chain = registration(grid)
    points = grid.index_to_world(rng.uniform(1, np.array(grid.shape) - 2, (20, 3)))
    paths = write_ants(chain, f"{tmp_path}/sub_", inverse_warp=chain.parts[0].inverse())  # type: ignore[arg-type]
    names = ["sub_0GenericAffine.mat", "sub_1Warp.nii.gz", "sub_1InverseWarp.nii.gz"]
    assert [path.name for path in paths] == names
    affine, warp, inverse = paths
    np.testing.assert_allclose(read_transform([warp, affine]).map_points(points), chain.map_points(points), atol=1e-5)
    np.testing.assert_allclose(read_ants(f"{tmp_path}/sub_").map_points(points), chain.map_points(points), atol=1e-5)
    back = read_transform([f"[{affine},1]", str(inverse)], source="moving", target="fixed")
    assert (back.source, back.target) == ("moving", "fixed")
    centres = chain.parts[1].map_points(grid.index_to_world([[4, 6, 5], [3, 7, 4]]))
    np.testing.assert_allclose(chain.map_points(back.map_points(centres)), centres, atol=3e-3)
    np.testing.assert_allclose(read_transform(f"[{affine}, 0]").map_points(points), chain.parts[1].map_points(points))


@pytest.mark.parametrize("suffix", [".tfm", ".mat", ".h5"])
def test_centre_of_rotation_is_honoured(suffix: str, tmp_path: Path, rng: np.random.Generator) -> None:
    points = rng.normal(0, 50, (10, 3))
    euler = SimpleITK.Euler3DTransform((10.0, 20.0, 30.0), 0.1, 0.2, 0.3, (1.0, 2.0, 3.0))
    affine = SimpleITK.AffineTransform(rng.normal(size=9).tolist(), (1, 2, 3), (40, 50, 60))
    similarity = SimpleITK.Similarity3DTransform(1.2, (0, 0, 1), 0.5, (1, 2, 3), (9, 8, 7))
    for theirs in (euler, affine, similarity, SimpleITK.TranslationTransform(3, (1.0, 2.0, 3.0))):
        path = tmp_path / f"centre{suffix}"
        SimpleITK.WriteTransform(theirs, str(path))
        expected = [theirs.TransformPoint(point) for point in points.tolist()]
        np.testing.assert_allclose(read_transform(path).map_points(points), expected, atol=1e-10)


def test_matrix_offset_and_float_affines_of_older_ants_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    for kind in ("MatrixOffsetTransformBase_double_3_3", "AffineTransform_float_3_3"):
        path.write_text(
            f"#Insight Transform File V1.0\n#Transform 0\nTransform: {kind}\n"
            "Parameters: 2 0 0 0 1 0 0 0 1 5 0 0\nFixedParameters: 10 0 0\n"
        )
        transform = read_transform(path)
        assert isinstance(transform, Affine)
        np.testing.assert_allclose(transform.map_points([[10, 1, 2]]), [[15, 1, 2]])


def test_composite_order_is_that_of_itk(tmp_path: Path) -> None:
    grow = SimpleITK.AffineTransform([2, 0, 0, 0, 2, 0, 0, 0, 2], (0, 0, 0))
    shift = SimpleITK.TranslationTransform(3, (1.0, 0, 0))
    composite = SimpleITK.CompositeTransform([grow, shift])
    SimpleITK.WriteTransform(composite, str(tmp_path / "both.tfm"))
    ours = read_transform(tmp_path / "both.tfm")
    np.testing.assert_allclose(ours.map_points([[1, 1, 1]])[0], composite.TransformPoint((1.0, 1, 1)))


def test_a_chain_can_be_written_as_one_displacement(tmp_path: Path, rng: np.random.Generator) -> None:
    grid = GRIDS["sagittal"]
    write_transform(registration(grid), tmp_path / "total.nii.gz")
    points = grid.index_to_world(rng.integers(0, grid.shape, (20, 3)))
    ours = read_transform(tmp_path / "total.nii.gz").map_points(points)
    np.testing.assert_allclose(ours, registration(grid).map_points(points), atol=2e-5)


def test_the_wrong_format_is_refused_with_advice(tmp_path: Path) -> None:
    chain = registration(GRIDS["lps"])
    with pytest.raises(FileError, match="affines only"):
        write_transform(chain, tmp_path / "chain.mat")
    with pytest.raises(FileError, match=r"write it as .mat"):
        write_transform(Affine(), tmp_path / "affine.nii.gz")
    with pytest.raises(FileError, match=r"use one of .mat"):
        write_transform(Affine(), tmp_path / "affine.docx")
    with pytest.raises(InputError, match=r"write this chain as .h5"):
        write_ants(chain.inverse(), f"{tmp_path}/")
    with pytest.raises(InputError, match="not change z"):
        write_transform(Affine(affine_about(GRIDS["lps"]).matrix, dimension=2), tmp_path / "flat.mat")
    assert list(tmp_path.iterdir()) == []


def test_existing_results_are_found_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "1Warp.nii.gz").write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        write_ants(registration(GRIDS["lps"]), f"{tmp_path}/")
    assert [path.name for path in tmp_path.iterdir()] == ["1Warp.nii.gz"]
    write_ants(registration(GRIDS["lps"]), f"{tmp_path}/", force=True)
    assert isinstance(read_ants(f"{tmp_path}/"), Chain)


def test_broken_transform_files_give_one_clear_sentence(tmp_path: Path, generator: torch.Generator) -> None:
    write_image(noise(GRIDS["lps"], generator), tmp_path / "scalar.nii.gz")
    for suffix in (".tfm", ".mat", ".h5", ".nii.gz"):
        (tmp_path / f"text{suffix}").write_text("hello\n" * 100)
    SimpleITK.WriteTransform(SimpleITK.BSplineTransform(3), str(tmp_path / "spline.tfm"))
    cases = {
        "none.mat": "no such file",
        "scalar.nii.gz": "needs 3 components, this has 1",
        "text.tfm": "cannot be read as a transform",
        "text.mat": "cannot be read as a transform",
        "text.h5": "cannot be read as a transform",
        "text.nii.gz": "not a NIfTI file",
        "spline.tfm": "BSplineTransform is not supported",
    }
    for name, words in cases.items():
        with pytest.raises(FileError, match=words) as caught:
            read_transform(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name)) and "\n" not in str(caught.value)
    with pytest.raises(FileError, match=r"write \[file,1\]"):
        read_transform("[affine.mat]")
    with pytest.raises(InputError, match="No transform"):
        read_transform([])
    with pytest.raises(FileError, match="neither"):
        read_ants(tmp_path / "sub")


def _values(path: Path) -> np.ndarray:
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))


def test_header_noise_does_not_split_a_warp_from_its_grid(tmp_path: Path) -> None:
    """NIfTI keeps geometry in float32; a warp read from it still counts as lying on the image's grid."""
    grid = Grid.from_itk(
        (11, 13, 9), (1 / 3, -1e3 / 7, 1e3 / 3), (0.1, 0.7, 1 / 3), GRIDS["oblique"].to_itk().direction
    )
    write_transform(smooth_warp(grid), tmp_path / "warp.nii.gz")
    again = read_transform(tmp_path / "warp.nii.gz")
    assert isinstance(again, Warp)
    assert again.on_grid(grid).displacement is again.displacement


def test_a_packed_field_is_the_same_file_and_leaves_no_other(tmp_path: Path) -> None:
    warp = smooth_warp(GRIDS["oblique"])
    write_transform(warp, tmp_path / "packed.nii.gz")
    write_transform(warp, tmp_path / "plain.nii")
    assert gzip.decompress((tmp_path / "packed.nii.gz").read_bytes()) == (tmp_path / "plain.nii").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"packed.nii.gz", "plain.nii"}


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_a_field_that_cannot_be_written_leaves_nothing(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Iterator[slice]:
        yield slice(0, 1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transforms, "slabs", full)
    with pytest.raises(FileError, match="No space left"):
        write_transform(smooth_warp(GRIDS["oblique"]), tmp_path / f"warp{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_series_is_no_displacement_field(tmp_path: Path, generator: torch.Generator) -> None:
    write_series([noise(GRIDS["lps"], generator)] * 2, tmp_path / "series.nii.gz")
    with pytest.raises(FileError, match="one volume, this file has 2"):
        read_transform(tmp_path / "series.nii.gz")


@pytest.mark.parametrize("name", ["fsl.mat", "greedy.mat", "matrix.txt"])
def test_a_bare_matrix_is_told_from_a_broken_file(name: str, tmp_path: Path) -> None:
    np.savetxt(tmp_path / name, np.eye(4))
    with pytest.raises(FileError, match=rf"{name}: is a bare matrix, as FSL and Greedy write"):
        read_transform(tmp_path / name)

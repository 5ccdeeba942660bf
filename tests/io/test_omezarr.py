"""OME-Zarr of versions 0.4 and 0.5: axes, units, levels, channels, damage, and what cannot be held."""

import json
import shutil
import sys

import numpy as np
import pytest

import warpfactor as wf
from warpfactor.errors import FileError, InputError
from warpfactor.io import read_labels, read_series
from warpfactor.io.atomic import check_free
from warpfactor.io.formats import find_format
from warpfactor.io.omezarr import stored

zarr = pytest.importorskip("zarr", reason="zarr is not installed")

VOXELS = np.arange(4 * 6 * 5, dtype=np.uint16).reshape(4, 6, 5)


def store(path, voxels, axes="zyx", *, unit="micrometer", version="0.5", shards=None, scale=(2.5, 0.65, 0.65)):
    """A folder with two levels, as microscopes' programs write them."""
    group = zarr.open_group(str(path), mode="w", zarr_format=3 if version == "0.5" else 2)
    space = dict(zip("zyx", scale, strict=True))
    datasets = []
    for level in range(2):
        part = voxels[tuple(slice(None, None, 1 + level) if axis in "zyx" else slice(None) for axis in axes)]
        chunks = tuple(max(1, n // 2) for n in part.shape)
        whole = tuple(2 * chunk for chunk in chunks) if shards else None
        group.create_array(str(level), data=part, chunks=chunks, shards=whole)
        steps = [{"type": "scale", "scale": [space.get(axis, 1.0) * (1 + level) for axis in axes]}]
        steps += [{"type": "translation", "translation": [100.0 if axis == "x" else 0.0 for axis in axes]}]
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    names = [{"name": axis, **({"unit": unit} if unit and axis in "zyx" else {})} for axis in axes]
    entry = [{"version": version, "axes": names, "datasets": datasets}]
    group.attrs.update(
        {"ome": {"version": version, "multiscales": entry}} if version == "0.5" else {"multiscales": entry}
    )
    return path


@pytest.mark.parametrize(("version", "shards"), [("0.4", None), ("0.5", None), ("0.5", True)])
def test_voxels_spacing_and_place_are_read(tmp_path, version, shards):
    image = wf.read_image(store(tmp_path / "a.ome.zarr", VOXELS, version=version, shards=shards))
    assert np.array_equal(image.data[0].numpy(), VOXELS)
    assert image.grid.spacing_mm == pytest.approx((2.5e-3, 0.65e-3, 0.65e-3))
    assert image.grid.index_to_world([[0, 0, 0]])[0] == pytest.approx((0.1, 0, 0))


def test_a_coarser_level_is_chosen_by_its_name(tmp_path):
    path = store(tmp_path / "a.ome.zarr", VOXELS)
    image = wf.read_image(path / "1")
    assert np.array_equal(image.data[0].numpy(), VOXELS[::2, ::2, ::2])
    assert image.grid.spacing_mm == pytest.approx((5e-3, 1.3e-3, 1.3e-3))


def test_n5_is_told_apart(tmp_path):
    (tmp_path / "a.n5" / "s0").mkdir(parents=True)
    for name in ("a.n5", "a.n5/s0"):
        with pytest.raises(FileError, match="is N5, which zarr-python no longer reads"):
            wf.read_image(tmp_path / name)
    with pytest.raises(FileError, match="is N5"):
        wf.write_image(wf.Image.from_array(VOXELS), tmp_path / "b.n5")


def test_chunks_are_named_as_viewers_expect(tmp_path):
    wf.write_image(wf.Image.from_array(VOXELS), tmp_path / "a.ome.zarr")
    assert (tmp_path / "a.ome.zarr" / "0" / "0" / "0" / "0").is_file()
    assert json.loads((tmp_path / "a.ome.zarr" / "0" / ".zarray").read_text())["dimension_separator"] == "/"


def test_axes_in_another_order_are_turned(tmp_path):
    image = wf.read_image(store(tmp_path / "a.zarr", VOXELS.transpose(2, 1, 0), "xyz", unit="millimeter"))
    assert np.array_equal(image.data[0].numpy(), VOXELS)
    assert image.grid.spacing_mm == pytest.approx((2.5, 0.65, 0.65))
    assert image.grid.index_to_world([[0, 0, 0]])[0] == pytest.approx((100, 0, 0))


def test_channels_time_points_and_planes(tmp_path):
    several = np.stack([VOXELS, VOXELS + 1])
    assert wf.read_image(store(tmp_path / "c.zarr", several, "czyx")).channels == 2
    series = store(tmp_path / "t.zarr", several, "tzyx")
    assert len(read_series(series)) == 2
    with pytest.raises(FileError, match="4-D image with 2 volumes"):
        wf.read_image(series)
    assert wf.read_image(store(tmp_path / "p.zarr", VOXELS[:1], "zyx")).grid.ndim == 2
    assert find_format(series).read_header(series).shape == (4, 6, 5)


def test_an_array_without_metadata_is_an_image_of_1_mm(tmp_path):
    zarr.create_array(str(tmp_path / "a.zarr"), data=VOXELS)
    assert wf.read_image(tmp_path / "a.zarr").grid.spacing_mm == (1, 1, 1)


def test_without_a_unit_numbers_are_micrometres(tmp_path):
    path = store(tmp_path / "a.zarr", VOXELS, unit=None)
    with pytest.warns(UserWarning, match="names no unit of length"):
        assert wf.read_image(path).grid.spacing_mm == pytest.approx((2.5e-3, 0.65e-3, 0.65e-3))


def damaged_chunk(path):
    chunk = next(file for file in (path / "0" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(chunk.read_bytes()[:9])


def missing_level(path):
    shutil.rmtree(path / "0")


def cut_metadata(path):
    file = path / "zarr.json"
    file.write_text(file.read_text()[:50])


def unknown_unit(path):
    change(path, lambda entry: entry["axes"][0].update(unit="parsec-ish"))


def unknown_axes(path):
    change(path, lambda entry: entry["axes"][0].update(name="w"))


def rotated(path):
    change(path, lambda entry: entry["datasets"][0]["coordinateTransformations"].append({"type": "rotation"}))


def no_spacing(path):
    change(path, lambda entry: entry["datasets"][0]["coordinateTransformations"][0].update(scale=[0, 1, 1]))


def change(path, how):
    file = path / "zarr.json"
    content = json.loads(file.read_text())
    how(content["attributes"]["ome"]["multiscales"][0])
    file.write_text(json.dumps(content))


DAMAGES = {
    damaged_chunk: "cannot be read as OME-Zarr",
    missing_level: "cannot be read as OME-Zarr",
    cut_metadata: "cannot be read as OME-Zarr",
    unknown_unit: "not a unit of length",
    unknown_axes: "has the axes wyx",
    rotated: "type rotation",
    no_spacing: "--spacing",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_damage_is_named(tmp_path, damage):
    path = store(tmp_path / "a.ome.zarr", VOXELS)
    damage(path)
    with pytest.raises(FileError, match=DAMAGES[damage]) as found:
        wf.read_image(path)
    assert str(path) in str(found.value)


def test_what_is_no_image_is_refused(tmp_path):
    with pytest.raises(FileError, match="no such Zarr folder"):
        wf.read_image(tmp_path / "none.zarr")
    store(tmp_path / "plate.zarr" / "A1", VOXELS)
    zarr.open_group(str(tmp_path / "plate.zarr"), mode="a")
    with pytest.raises(FileError, match="holds A1; add the name"):
        wf.read_image(tmp_path / "plate.zarr")
    assert wf.read_image(tmp_path / "plate.zarr" / "A1").grid.shape == (4, 6, 5)


@pytest.mark.parametrize("shape", [(5, 70, 9), (70, 66)])
def test_what_is_written_is_read_back(tmp_path, shape):
    numbers = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    image = wf.Image.from_array(numbers, [1.5, 0.8, 0.7][-len(shape) :])
    wf.write_image(image, tmp_path / "a.ome.zarr")
    again = wf.read_image(tmp_path / "a.ome.zarr")
    assert again.grid.same_space(image.grid) and np.array_equal(again.data.numpy(), image.data.numpy())
    coarse = wf.read_image(tmp_path / "a.ome.zarr" / "1")
    assert coarse.grid.spacing_mm[-1] == pytest.approx(1.4)
    assert np.array_equal(coarse.data.squeeze().numpy(), numbers[(slice(None, None, 2),) * len(shape)])


def test_an_existing_folder_is_replaced_by_force_only(tmp_path):
    for voxels in (VOXELS, VOXELS + 1):
        wf.write_image(wf.Image.from_array(voxels.astype(np.float32)), tmp_path / "a.zarr", force=voxels is not VOXELS)
    with pytest.raises(FileError, match="not empty"):
        check_free(tmp_path / "a.zarr", force=False)
    check_free(tmp_path / "a.zarr", force=True)
    assert np.array_equal(wf.read_image(tmp_path / "a.zarr").data[0].numpy(), VOXELS + 1)


def test_labels_and_channels_are_written(tmp_path):
    labels = wf.Image.from_array(VOXELS.astype(np.int32))
    wf.write_image(labels, tmp_path / "l.zarr")
    assert np.array_equal(read_labels(tmp_path / "l.zarr").data[0].numpy(), VOXELS)
    two = wf.Image(wf.Image.from_array(VOXELS.astype(np.float32)).data.repeat(2, 1, 1, 1), labels.grid, "two")
    wf.write_image(two, tmp_path / "c.zarr")
    assert wf.read_image(tmp_path / "c.zarr").channels == 2


def test_an_orientation_is_refused(tmp_path):
    grid = wf.Grid.from_itk((5, 6, 4), (0, 0, 0), (1, 1, 1), (0, 1, 0, 1, 0, 0, 0, 0, 1))
    with pytest.raises(InputError, match="holds no orientation"):
        wf.write_image(wf.Image.from_array(VOXELS.astype(np.float32), grid=grid), tmp_path / "a.zarr")
    assert not list(tmp_path.iterdir())


def test_without_the_package_the_message_says_what_to_install(tmp_path, monkeypatch):
    path = store(tmp_path / "a.zarr", VOXELS)
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(FileError, match="warpfactor\\[zarr\\]"):
        wf.read_image(path)


def test_a_pair_is_registered_from_zarr(tmp_path):
    made = wf.phantom.phantom((1, 40, 44), seed=2, displacement_vox=1.5)
    files = [store_plane(tmp_path / f"{name}.ome.zarr", getattr(made, name)) for name in ("fixed", "moving")]
    found = wf.register(*files)
    assert found.fixed_grid.spacing_mm[1:] == pytest.approx((0.01, 0.01))
    found.save(tmp_path / "out")
    assert (tmp_path / "out" / "report.html").exists()


def store_plane(path, voxels):
    return store(path, voxels[0].numpy(), "yx", scale=(1, 10, 10))


BLOSC2 = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
BLOSC3 = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle"}}


@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 2, "compressors": BLOSC2},
        {"zarr_format": 3, "compressors": BLOSC3},
        {"zarr_format": 3, "shards": (4, 6, 5), "chunks": (2, 6, 5)},
        {"zarr_format": 2, "compressors": None},
    ],
    ids=["Blosc, Zarr 2", "Blosc, Zarr 3", "shards", "raw"],
)
def test_a_chunk_cut_short_is_refused_wherever_it_is_cut(tmp_path, options):
    path = tmp_path / "a.zarr"
    zarr.create_array(str(path), data=VOXELS, **{"chunks": VOXELS.shape, **options})
    chunk = next(each for each in sorted(path.rglob("*")) if each.is_file() and each.name[0] not in "z.")
    whole = chunk.read_bytes()
    assert np.array_equal(wf.read_image(path).data[0].numpy(), VOXELS)
    for length in [*range(0, len(whole), 37), *range(len(whole) - 6, len(whole))]:
        chunk.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"damaged"):
            wf.read_image(path)


def test_a_part_is_read_if_the_damage_is_elsewhere(tmp_path):
    path = tmp_path / "a.zarr"
    zarr.create_array(str(path), data=VOXELS, chunks=(2, 6, 5), zarr_format=2, compressors=BLOSC2)
    chunk = path / "1.0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    found = stored(path)
    box = (slice(0, 2), slice(0, 6), slice(1, 5))
    assert np.array_equal(found.read(0, box), VOXELS[:2, :, 1:])
    with pytest.raises(FileError, match=r"chunk 1\.0\.0 is damaged"):
        found.read(0, (slice(1, 3), slice(0, 6), slice(0, 5)))

"""Scores of a transform agree with what SimpleITK makes of the same files, in every orientation of the grid."""

import dataclasses

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.bench.data.dataset import BenchCase, read_table
from warpfactor.bench.data.example import write_example
from warpfactor.bench.score.score import affine_of, region, score
from warpfactor.geometry.itk import sitk

SHAPE = (20, 24, 22)
GRIDS = {
    "identity": wf.Grid.from_spacing(SHAPE, 1.5),
    "anisotropic": wf.Grid.from_spacing(SHAPE, (3.0, 1.0, 2.0)),
    "turned": wf.Grid.from_itk(SHAPE[::-1], (-20.0, 11.0, 5.0), (1.2, 2.0, 1.5), (0, -1, 0, -0.8, 0, 0.6, 0.6, 0, 0.8)),
}


def blobs(rng, shape=SHAPE):
    """Labels 1 to 4 in blocks away from the border; 4 is small."""
    labels = np.zeros(shape, np.uint8)
    for label, (size, start) in enumerate(
        (((9, 8, 7), (3, 3, 3)), ((6, 9, 8), (9, 11, 9)), ((5, 5, 6), (4, 14, 4))), 1
    ):
        labels[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))] = label
    labels[2, 2, 17:19] = 4
    noise = rng.random(shape) < 0.02
    noise[[0, -1]] = noise[:, [0, -1]] = noise[:, :, [0, -1]] = False
    labels[noise] = 1
    return labels


def write(data, grid, path):
    image = sitk.GetImageFromArray(data)
    geometry = grid.to_itk()
    image.SetOrigin(geometry.origin)
    image.SetSpacing(geometry.spacing)
    image.SetDirection(geometry.direction)
    sitk.WriteImage(image, str(path))
    return path


@pytest.fixture(params=GRIDS)
def scene(request, tmp_path, rng, generator):
    """A case with labels and landmarks on one grid, and a transform: a warp of a few voxels and then an affine."""
    grid = GRIDS[request.param]
    files = {}
    for name in ("fixed", "moving", "fixed_labels", "moving_labels"):
        data = blobs(rng) if "labels" in name else (blobs(rng) * 10.0 + 1).astype(np.float32)
        files[name] = write(data, grid, tmp_path / f"{name}.nii.gz")
    points = np.hstack([grid.index_to_world(rng.uniform(4, 15, (12, 3))) for _ in range(2)])
    header = "fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z"
    np.savetxt(tmp_path / "marks.csv", points, delimiter=",", header=header, comments="")
    field = torch.nn.functional.interpolate(torch.randn(1, 3, 4, 4, 4, generator=generator), SHAPE, mode="trilinear")[0]
    matrix = np.eye(4)
    matrix[:3, :3] += rng.normal(0, 0.03, (3, 3))
    matrix[:3, 3] = 1.0, -0.5, 0.7
    transform = wf.Chain((wf.Warp(field, grid), wf.Affine(matrix)), "fixed", "moving")
    wf.write_transform(transform, tmp_path / "transform.h5")
    case = BenchCase("x", **files, fixed_landmarks=tmp_path / "marks.csv")
    return case, transform, sitk.ReadTransform(str(tmp_path / "transform.h5")), points


def carried(case, transform):
    """Fixed labels and moving labels through the transform, by SimpleITK."""
    fixed, moving = (sitk.ReadImage(str(path)) for path in (case.fixed_labels, case.moving_labels))
    return fixed, sitk.Resample(moving, fixed, transform, sitk.sitkNearestNeighbor, 0)


def test_dice_is_simpleitks(scene):
    case, transform, itk_transform, _ = scene
    found = score(case, transform)
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(*carried(case, itk_transform))
    expected = {label: overlap.GetDiceCoefficient(label) for label in (1, 2, 3, 4)}
    assert found.per_label["dice"] == pytest.approx(expected, abs=1e-12)
    assert found.values["dice"] == pytest.approx(np.mean(list(expected.values())), abs=1e-12)
    overlap.Execute(*carried(case, sitk.Transform(3, sitk.sitkIdentity)))
    exact = {label: overlap.GetDiceCoefficient(label) for label in (1, 2, 3, 4)}
    assert found.per_label["dice_before"] == pytest.approx(exact, abs=1e-12)


def distances(a, b):
    """mm from each surface voxel of a to the surface of b, by SimpleITK's contours and Danielsson's map."""
    contours = [sitk.BinaryContour(image, fullyConnected=False) for image in (a, b)]
    away = sitk.DanielssonDistanceMap(contours[1], inputIsBinary=True, squaredDistance=False, useImageSpacing=True)
    return sitk.GetArrayFromImage(away)[sitk.GetArrayFromImage(contours[0]) > 0]


def test_surface_distances_are_simpleitks(scene):
    case, _, _, _ = scene
    still = score(case, wf.Affine())
    fixed, moving = carried(case, sitk.Transform(3, sitk.sitkIdentity))
    for label in (1, 2, 3, 4):
        a, b = fixed == label, moving == label
        both = [np.percentile(distances(*pair), 95) for pair in ((a, b), (b, a))]
        assert still.per_label["hd95_mm"][label] == pytest.approx(max(both), rel=1e-4, abs=1e-3)
    assert still.values["hd95_mm"] == pytest.approx(np.mean(list(still.per_label["hd95_mm"].values())))


def test_landmark_errors_are_simpleitks(scene):
    case, transform, itk_transform, points = scene
    found = score(case, transform)
    mapped = np.array([itk_transform.TransformPoint(point) for point in points[:, :3].tolist()])
    errors = np.linalg.norm(mapped - points[:, 3:], axis=1)
    np.testing.assert_allclose(found.per_landmark_mm, errors, atol=1e-4)
    assert found.values["tre_mean_mm"] == pytest.approx(errors.mean(), abs=1e-4)
    assert found.values["tre_median_mm"] == pytest.approx(np.median(errors), abs=1e-4)
    assert found.values["tre_max_mm"] == pytest.approx(errors.max(), abs=1e-4)
    before = np.linalg.norm(points[:, :3] - points[:, 3:], axis=1)
    assert found.values["tre_mean_before_mm"] == pytest.approx(before.mean())


def test_the_jacobian_is_simpleitks(scene):
    """SimpleITK ignores direction cosines, so it is given the field as if the grid had none."""
    case, transform, _, _ = scene
    found = score(case, transform)
    warp = transform.parts[0]
    plain = wf.Grid.from_spacing(SHAPE, warp.grid.spacing_mm)
    field = wf.Warp(warp.displacement, plain)
    mm = plain.voxels_to_mm(field.displacement).permute(1, 2, 3, 0).contiguous().numpy()
    image = sitk.GetImageFromArray(mm, isVector=True)
    image.SetSpacing(plain.to_itk().spacing)
    expected = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(image))
    inner = (slice(1, -1),) * 3  # at the border SimpleITK takes zero beyond, we a one-sided difference
    mask = np.zeros(SHAPE, np.uint8)
    mask[inner] = 1
    path = write(mask, warp.grid, case.fixed.parent / "mask.nii.gz")
    inside = score(dataclasses.replace(case, fixed_mask=path), transform).values
    log = np.log(expected[inner].clip(1e-3, 1e3))
    assert inside["sd_log_jacobian"] == pytest.approx(log.std(), rel=1e-4)
    assert inside["folded_fraction"] == pytest.approx((expected[inner] <= 0).mean(), abs=1e-9)
    assert inside["jacobian_minimum"] == pytest.approx(expected[inner].min(), abs=1e-4)
    assert inside["sd_log_jacobian_image"] == found.values["sd_log_jacobian_image"]


def test_an_affine_before_the_warp_is_taken_out(scene):
    case, transform, _, _ = scene
    warp, affine = transform.parts
    still = wf.Warp(torch.zeros_like(warp.displacement), warp.grid, "fixed", "fixed")
    found = score(case, wf.Chain((affine, still))).values
    assert abs(np.linalg.det(affine.matrix[:3, :3]) - 1) > 1e-3
    assert found["jacobian_minimum_image"] == pytest.approx(1, abs=1e-4)
    assert found["sd_log_jacobian_image"] == pytest.approx(0, abs=1e-4)


def test_without_a_warp_there_is_no_spread(scene):
    case, transform, _, _ = scene
    found = score(case, affine_of(transform))
    assert found.values["sd_log_jacobian"] == found.values["folded_voxels"] == 0
    assert found.values["dice"] == score(case, transform).values["dice_affine"]


def test_a_label_that_gets_lost_counts_as_zero(tmp_path, rng):
    grid = GRIDS["identity"]
    labels = blobs(rng)
    files = {
        name: write(labels if "labels" in name else labels.astype(np.float32), grid, tmp_path / f"{name}.nii.gz")
        for name in ("fixed", "moving", "fixed_labels", "moving_labels")
    }
    away = np.eye(4)
    away[0, 3] = 500.0
    found = score(BenchCase("x", **files), wf.Affine(away))
    assert found.values["dice"] == 0 and found.values["labels_lost"] == 4
    assert found.per_label["dice"] == dict.fromkeys((1, 2, 3, 4), 0.0)
    assert np.isnan(found.values["hd95_mm"])


def test_without_truth_there_is_mutual_information(scene):
    case, transform, _, _ = scene
    found = score(BenchCase("x", case.fixed, case.moving), transform).values
    fixed, moving = wf.read_image(case.fixed), wf.read_image(case.moving)
    assert found["mi_before_nats"] == wf.quality.mutual_information(fixed.data[0], moving.data[0])
    assert found["mi_nats"] != found["mi_affine_nats"] and "dice" not in found and "tre_mean_mm" not in found


def test_regularity_counts_where_there_is_something(tmp_path):
    grid = wf.Grid.from_spacing((6, 7, 8))
    data = torch.zeros(1, 6, 7, 8)
    data[0, 2:4, 2:5, 3:6] = 5.0
    case = BenchCase("x", tmp_path, tmp_path)
    assert int(region(case, wf.Image(data, grid)).sum()) == 18
    data[0, 0, 0, 0] = 1.0  # the border is no longer of one value
    assert int(region(case, wf.Image(data, grid)).sum()) == data.numel()
    path = write((data[0] == 5).numpy().astype(np.uint8), grid, tmp_path / "mask.nii.gz")
    assert int(region(dataclasses.replace(case, fixed_mask=path), wf.Image(data, grid)).sum()) == 18


def test_the_truth_of_an_example_scores_well(tmp_path):
    """The landmarks of the example are those of its phantom: the true warp has no error, and lowers it from before."""
    (case,) = read_table(write_example(tmp_path / "ex", pairs=1, shape=(1, 48, 56))).cases
    truth = wf.phantom.phantom((1, 48, 56), seed=0).displacement
    found = score(case, wf.Warp(truth, wf.read_image(case.fixed).grid)).values
    assert found["tre_max_mm"] < 1e-5 < 1 < found["tre_mean_before_mm"]
    assert found["dice"] > found["dice_before"] + 0.2

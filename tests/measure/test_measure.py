"""Quality figures against SimpleITK's own filters, brute force and hand-made cases."""

import math
from typing import Any

import numpy as np
import pytest
import SimpleITK
import torch

from warpfactor import measure
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.kernels import reference
from warpfactor.measure.displacement import residual_figures, round_trip

sitk: Any = SimpleITK


@pytest.fixture
def label_maps(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two maps of three irregular labels, the second a shifted and eroded copy of the first."""
    noise = rng.standard_normal((18, 20, 22))
    for axis in range(3):
        noise = (noise + np.roll(noise, 1, axis) + np.roll(noise, -1, axis)) / 3
    first = np.digitize(noise, [-0.1, 0.05, 0.15]).astype(np.int32)
    second = np.roll(first, (1, 2, 0), (0, 1, 2))
    second[:2] = 0
    return first, second


def box(shape: tuple[int, int, int], low: tuple[int, ...], high: tuple[int, ...]) -> np.ndarray:
    labels = np.zeros(shape, dtype=np.int32)
    labels[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = 1
    return labels


def brute_force_surface(labels: np.ndarray, label: int) -> np.ndarray:
    """Surface indices voxel by voxel: some in-range axis has a neighbour outside the label."""
    inside = np.pad(labels == label, 1)
    axes = [axis for axis in range(3) if labels.shape[axis] > 1]
    whole = inside.copy()
    for axis in axes:
        whole &= np.roll(inside, 1, axis) & np.roll(inside, -1, axis)
    return np.argwhere(inside & ~whole) - 1


def brute_force_hd95(a: np.ndarray, b: np.ndarray, label: int, spacing: tuple[float, ...]) -> float:
    points_a, points_b = (brute_force_surface(m, label) * np.array(spacing) for m in (a, b))
    distance = np.linalg.norm(points_a[:, None] - points_b[None], axis=-1)
    return float(max(np.percentile(distance.min(axis=axis), 95) for axis in (0, 1)))


def test_dice_equals_simpleitk(label_maps: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = label_maps
    overlap = sitk.LabelOverlapMeasuresImageFilter()
    overlap.Execute(sitk.GetImageFromArray(a), sitk.GetImageFromArray(b))
    ours = measure.dice(torch.from_numpy(a), b.astype(np.float32))
    assert ours == pytest.approx({label: overlap.GetDiceCoefficient(label) for label in (1, 2, 3)})


def test_label_in_one_map_only_counts_zero_and_leaves_the_common_mean() -> None:
    figures = measure.dice_figures(np.array([0, 1, 1, 7]), np.array([0, 1, 0, 0]))
    assert figures.per_label == {1: pytest.approx(2 / 3), 7: 0.0}
    assert figures.mean == pytest.approx(1 / 3)
    assert figures.mean_common == pytest.approx(2 / 3)


def test_dice_of_empty_maps_has_no_mean() -> None:
    figures = measure.dice_figures(np.zeros(5, int), np.zeros(5, int))
    assert figures.per_label == {}
    assert math.isnan(figures.mean)
    assert math.isnan(figures.mean_common)


def test_dice_takes_very_large_labels() -> None:
    assert measure.dice(np.array([600_000_000, 5]), np.array([600_000_000, 0])) == {600_000_000: 1.0, 5: 0.0}


@pytest.mark.parametrize("depth", [18, 1])
def test_hd95_equals_brute_force(label_maps: tuple[np.ndarray, np.ndarray], depth: int) -> None:
    a, b = (labels[-depth:] for labels in label_maps)
    spacing = (2.5, 1.0, 0.7)
    expected = {label: brute_force_hd95(a, b, label, spacing) for label in (1, 2, 3)}
    assert measure.hausdorff95(a, b, spacing_mm=spacing) == pytest.approx(expected, rel=1e-5)


def test_largest_surface_distance_equals_simpleitk() -> None:
    a, b = box((20, 22, 24), (3, 4, 5), (10, 12, 14)), box((20, 22, 24), (6, 9, 3), (15, 16, 11))
    spacing = (2.0, 1.0, 0.5)
    images = [sitk.GetImageFromArray(m) for m in (a, b)]
    for image in images:
        image.SetSpacing(spacing[::-1])
    hausdorff = sitk.HausdorffDistanceImageFilter()
    hausdorff.Execute(*images)
    [(label, a_to_b, b_to_a)] = measure.surface_distances(a, b, spacing_mm=spacing)
    assert label == 1
    assert max(a_to_b.max(), b_to_a.max()) == pytest.approx(hausdorff.GetHausdorffDistance(), rel=1e-6)


def test_hd95_of_equal_maps_is_zero_and_a_shift_is_its_length() -> None:
    a = box((12, 12, 12), (2, 2, 2), (6, 6, 6))
    assert measure.hausdorff95(a, a, spacing_mm=(1, 1, 1)) == {1: 0.0}
    flat = box((12, 12, 12), (2, 0, 0), (3, 12, 12))
    shifted = np.roll(flat, 3, axis=0)
    assert measure.hausdorff95(flat, shifted, spacing_mm=(1.5, 1, 1)) == {1: pytest.approx(4.5)}


def test_hd95_leaves_out_labels_of_one_map() -> None:
    a = box((6, 6, 6), (1, 1, 1), (3, 3, 3))
    assert measure.hausdorff95(a, 2 * a, spacing_mm=(1, 1, 1)) == {}
    assert measure.hausdorff95(a, 0 * a, spacing_mm=(1, 1, 1)) == {}


def test_target_registration_error_by_hand() -> None:
    mapped = np.array([[0.0, 0, 0], [1, 1, 1], [2, 0, 0], [0, 5, 0]])
    true = np.array([[3.0, 4, 0], [1, 1, 1], [0, 0, 0], [0, 4, 0]])
    errors = measure.target_registration_error(torch.from_numpy(mapped), true)
    assert errors.per_point.tolist() == [5, 0, 2, 1]
    assert (errors.mean, errors.median, errors.max) == (2.0, 1.5, 5.0)
    assert errors.p90 == pytest.approx(4.1)


def test_jacobian_figures_equal_simpleitk_determinants(rng: np.random.Generator) -> None:
    displacement = rng.standard_normal((3, 9, 10, 11)) * 0.6
    field = sitk.GetImageFromArray(np.moveaxis(displacement[::-1], 0, -1), isVector=True)
    expected = sitk.GetArrayFromImage(sitk.DisplacementFieldJacobianDeterminant(field))[1:-1, 1:-1, 1:-1]
    gradient = np.stack([np.stack(np.gradient(component)) for component in displacement])
    jacobian = np.moveaxis(gradient, (0, 1), (-2, -1)) + np.eye(3)
    determinant = np.linalg.det(jacobian)[1:-1, 1:-1, 1:-1]
    ours, theirs = measure.jacobian_figures(determinant), measure.jacobian_figures(expected)
    assert ours.folded_count == theirs.folded_count > 0
    assert ours.minimum == pytest.approx(theirs.minimum, rel=1e-5)
    assert ours.sd_log == pytest.approx(theirs.sd_log, rel=1e-5)
    assert ours.percentiles == pytest.approx(theirs.percentiles, rel=1e-4)


def test_jacobian_figures_by_hand() -> None:
    determinant = torch.tensor([[[-1.0, 0.0, math.e, math.e, 1e9]]])
    mask = torch.tensor([[[True, True, True, True, False]]])
    figures = measure.jacobian_figures(determinant, mask)
    assert (figures.folded_count, figures.folded_fraction, figures.minimum) == (2, 0.5, -1.0)
    assert figures.percentiles[50] == pytest.approx(math.e / 2)
    assert figures.sd_log == pytest.approx((1 - math.log(1e-3)) / 2)


def test_identity_has_no_folds_and_no_spread() -> None:
    figures = measure.jacobian_figures(torch.ones(4, 5, 6))
    assert (figures.folded_count, figures.minimum, figures.sd_log) == (0, 1.0, 0.0)
    assert set(figures.percentiles) == {1, 5, 50, 95, 99}


def test_displacement_error_and_inverse_consistency_by_hand() -> None:
    found = torch.zeros(3, 1, 2, 2)
    found[1, 0, 0, 0], found[2, 0, 0, 0], found[0, 0, 1, 1] = 3.0, 4.0, 100.0
    mask = torch.tensor([[[True, True], [True, False]]])
    errors = measure.displacement_error(found, torch.zeros_like(found), mask)
    assert (errors.mean, errors.p95, errors.max) == pytest.approx((5 / 3, 4.5, 5.0))
    assert measure.inverse_consistency(found.square().sum(0).sqrt(), mask) == errors


def test_ncc_is_the_correlation_coefficient(rng: np.random.Generator) -> None:
    a = rng.standard_normal((4, 5, 6))
    b = a + rng.standard_normal(a.shape)
    assert measure.ncc(a, b) == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert measure.ncc(a, 3 - 2 * a) == pytest.approx(-1)
    assert measure.ncc(a, np.ones_like(a)) == 0.0


def test_mutual_information_of_known_histograms(rng: np.random.Generator) -> None:
    a = np.repeat(np.arange(4.0), 25)
    assert measure.mutual_information(a, (a - 1.5) ** 2, bins=4) == pytest.approx(math.log(2))
    assert measure.mutual_information(a, -a, bins=4) == pytest.approx(math.log(4))
    assert measure.mutual_information(a, np.tile(np.arange(25.0), 4), bins=4) == pytest.approx(0, abs=1e-12)
    half = np.arange(100) < 50
    assert measure.mutual_information(a, a, bins=2, mask=half) == pytest.approx(math.log(2))


def test_input_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match=r"\(3,\) and \(4,\)"):
        measure.dice(np.zeros(3, int), np.zeros(4, int))
    with pytest.raises(InputError, match="not whole numbers"):
        measure.dice(np.array([0.5]), np.array([1.0]))
    with pytest.raises(InputError, match="not whole numbers"):
        measure.dice(np.array([np.inf]), np.array([1.0]))
    with pytest.raises(InputError, match="spacing"):
        measure.hausdorff95(np.ones((2, 2, 2), int), np.ones((2, 2, 2), int), spacing_mm=(1, 0, 1))
    with pytest.raises(InputError, match="Landmarks"):
        measure.target_registration_error(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(InputError, match="mask is empty"):
        measure.jacobian_figures(torch.ones(2, 2, 2), torch.zeros(2, 2, 2))


@pytest.mark.parametrize(("shape", "side_mm"), [((10, 12, 14), 1.5), ((1, 20, 24), 1.0)])
def test_what_an_inversion_leaves_gives_the_figures_of_a_round_trip(shape, side_mm, generator):
    flow = reference.smooth_gaussian(8 * torch.randn((3, *shape), generator=generator), (2.0, 2.0, 2.0))
    flow[0] *= shape[0] > 1
    inverse, residual = reference.invert(flow)
    grid = Grid.from_spacing(shape if shape[0] > 1 else shape[1:], side_mm)
    found = residual_figures(inverse, residual, grid, reference)
    expected = round_trip(inverse, flow, grid, reference)
    assert found is not None
    assert found[0] == pytest.approx(expected[0], abs=1e-5)
    assert found[1] == pytest.approx(expected[1], abs=2e-5)
    uneven = Grid.from_spacing((3, 4, 5), (1.0, 1.0, 2.0))
    assert residual_figures(inverse, residual, uneven, reference) is None

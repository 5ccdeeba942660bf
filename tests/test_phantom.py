"""The phantom keeps its promises: known truth, invertible warp, determinism, contrasts, 2-D."""

from typing import Any

import numpy as np
import pytest
import torch

from warpfactor.errors import InputError
from warpfactor.phantom import CORTEX, CSF, LABEL_NAMES, WHITE_MATTER, Phantom, phantom

SMALL = (40, 44, 36)
FLAT = (1, 96, 80)


def sample_linear(image: torch.Tensor, displacement: torch.Tensor) -> np.ndarray:
    """Image at x + u(x), trilinear, for points that stay inside it."""
    values, u = image.numpy().astype(np.float64), displacement.numpy().astype(np.float64)
    position = np.indices(values.shape) + u
    limit = np.array(values.shape).reshape(3, 1, 1, 1) - 1
    low = np.clip(np.floor(position), 0, np.maximum(limit - 1, 0)).astype(int)
    high = np.minimum(low + 1, limit)
    share = position - low
    result = np.zeros(values.shape)
    for corner in np.ndindex(2, 2, 2):
        pick = [np.where(bit, high[a], low[a]) for a, bit in enumerate(corner)]
        weight = np.prod([share[a] if bit else 1 - share[a] for a, bit in enumerate(corner)], axis=0)
        result += weight * values[tuple(pick)]
    return result


def smallest_determinant(displacement: torch.Tensor) -> float:
    axes = [a for a in range(3) if displacement.shape[a + 1] > 1]
    u = displacement.numpy().astype(np.float64)
    gradient = np.stack([np.stack([np.gradient(u[a], axis=b) for b in axes], axis=-1) for a in axes], axis=-2)
    return float(np.linalg.det(gradient + np.eye(len(axes))).min())


def clean(shape: tuple[int, int, int], displacement_vox: float = 4.0) -> Phantom:
    return phantom(shape, noise=0, bias=0, displacement_vox=displacement_vox)


@pytest.mark.parametrize("shape", [SMALL, FLAT])
def test_moving_at_the_true_displacement_is_the_fixed_image(shape: tuple[int, int, int]) -> None:
    brain = clean(shape)
    error = np.abs(sample_linear(brain.moving, brain.displacement) - brain.fixed.numpy())
    unwarped = np.abs(brain.moving.numpy() - brain.fixed.numpy())
    inside = brain.mask.numpy()
    assert error.max() < 0.25
    assert np.percentile(error[inside], 99) < 0.08
    assert error[inside].mean() < 0.02
    assert unwarped[inside].mean() > 4 * error[inside].mean()


def test_identity_displacement_gives_equal_images_and_labels() -> None:
    brain = clean(SMALL, displacement_vox=0)
    assert torch.equal(brain.fixed, brain.moving)
    assert torch.equal(brain.fixed_labels, brain.moving_labels)


def test_labels_follow_the_displacement() -> None:
    brain = clean(SMALL)
    inside = brain.mask.numpy()
    index = (np.indices(SMALL) + brain.displacement.numpy()).round().astype(int)
    nearest = brain.moving_labels.numpy()[tuple(index)]
    assert (nearest == brain.fixed_labels.numpy())[inside].mean() > 0.8
    assert set(np.unique(brain.fixed_labels.numpy()).tolist()) <= {0, *LABEL_NAMES}


def test_default_size_has_every_label_in_both_images() -> None:
    brain = phantom((1, 112, 96))
    for labels in (brain.fixed_labels, brain.moving_labels):
        assert set(np.unique(labels.numpy()).tolist()) == {0, *LABEL_NAMES}


@pytest.mark.parametrize("shape", [SMALL, FLAT])
@pytest.mark.parametrize("displacement_vox", [2.0, 4.0, 25.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_warp_is_invertible_and_zero_at_the_border(
    shape: tuple[int, int, int], displacement_vox: float, seed: int
) -> None:
    displacement = phantom(shape, displacement_vox=displacement_vox, seed=seed).displacement
    assert smallest_determinant(displacement) > 0.3
    assert float(displacement.square().sum(0).max().sqrt()) <= displacement_vox + 1e-4
    for axis in (a for a in (1, 2, 3) if displacement.shape[a] > 1):
        assert displacement.select(axis, 0).abs().max() < 1e-3
        assert displacement.select(axis, -1).abs().max() < 1e-3


def test_displacement_has_the_length_asked_for() -> None:
    displacement = phantom((1, 96, 96), displacement_vox=3.0).displacement
    assert float(displacement.square().sum(0).max().sqrt()) == pytest.approx(3.0, rel=1e-5)


def test_two_dimensions_have_no_displacement_along_z() -> None:
    brain = phantom(FLAT)
    assert brain.displacement.shape == (3, *FLAT)
    assert not brain.displacement[0].any()
    assert brain.displacement[1].any()


def test_types_and_shapes() -> None:
    brain = phantom(SMALL)
    for image in (brain.fixed, brain.moving):
        assert (image.shape, image.dtype) == (SMALL, torch.float32)
    for labels in (brain.fixed_labels, brain.moving_labels):
        assert (labels.shape, labels.dtype) == (SMALL, torch.int32)
    assert (brain.displacement.shape, brain.displacement.dtype) == ((3, *SMALL), torch.float32)
    assert brain.mask.dtype == torch.bool
    assert torch.equal(brain.mask, brain.fixed_labels > 0)
    assert 0.1 < brain.mask.float().mean() < 0.7


def test_seed_decides_everything() -> None:
    first, again, other = phantom(FLAT, seed=5), phantom(FLAT, seed=5), phantom(FLAT, seed=6)
    for name in ("fixed", "moving", "fixed_labels", "moving_labels", "displacement", "mask"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_anatomy_and_warp_do_not_depend_on_noise_bias_or_contrast() -> None:
    first, second = phantom(FLAT), phantom(FLAT, noise=0.1, bias=0.5, contrast="t2")
    assert torch.equal(first.displacement, second.displacement)
    assert torch.equal(first.fixed_labels, second.fixed_labels)
    assert torch.equal(first.moving_labels, second.moving_labels)


def test_noise_has_its_standard_deviation_and_is_independent() -> None:
    quiet, noisy = phantom(FLAT, noise=0), phantom(FLAT, noise=0.05)
    fixed_noise, moving_noise = noisy.fixed - quiet.fixed, noisy.moving - quiet.moving
    assert float(fixed_noise.std()) == pytest.approx(0.05, rel=0.05)
    assert float(moving_noise.std()) == pytest.approx(0.05, rel=0.05)
    assert abs(float(torch.corrcoef(torch.stack([fixed_noise.ravel(), moving_noise.ravel()]))[0, 1])) < 0.05


def test_bias_is_bounded_and_independent() -> None:
    plain, biased = clean(FLAT), phantom(FLAT, noise=0, bias=0.3)
    logs = [
        (getattr(biased, n) / getattr(plain, n))[plain.fixed_labels * plain.moving_labels > 0].log()
        for n in ("fixed", "moving")
    ]
    for log in logs:
        assert log.abs().max() < 0.3 + 1e-4
        assert log.max() - log.min() > 0.2
    assert not torch.allclose(logs[0], logs[1], atol=0.05)


def test_t2_is_not_monotonic_in_t1() -> None:
    t1, t2 = clean(FLAT), phantom(FLAT, noise=0, bias=0, contrast="t2")
    tissues = [t1.moving_labels == label for label in (0, CSF, CORTEX, WHITE_MATTER)]
    assert torch.equal(t1.fixed, t2.fixed)
    t1_means = torch.stack([t1.moving[tissue].mean() for tissue in tissues])
    t2_means = torch.stack([t2.moving[tissue].mean() for tissue in tissues])
    assert (t1_means.diff() > 0.1).all()
    assert t2_means[1] - t2_means[0] > 0.1
    assert (t2_means[1:].diff() < -0.1).all()


def test_inverted_is_one_minus_t1() -> None:
    inverted = phantom(FLAT, noise=0, bias=0, contrast="inverted").moving
    assert torch.equal(inverted, 1 - clean(FLAT).moving)


def test_texture_is_everywhere_in_the_object() -> None:
    brain = clean(SMALL)
    image = brain.fixed[None, None]
    mean = torch.nn.functional.avg_pool3d(image, 7, 1, 3)
    variance = torch.nn.functional.avg_pool3d(image**2, 7, 1, 3) - mean**2
    assert float(variance[0, 0][brain.mask].clamp(min=0).sqrt().min()) > 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (64, 64)}, r"\(D, H, W\)"),
        ({"shape": (8, 64, 64)}, "at least 16"),
        ({"contrast": "flair"}, "t1, t2, inverted"),
        ({"noise": -1.0}, "noise = -1.0"),
        ({"bias": float("nan")}, "bias = nan"),
        ({"displacement_vox": float("inf")}, "displacement_vox = inf"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        phantom(**options)

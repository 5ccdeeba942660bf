"""What a registration notices about its result, and how landmarks that get worse are counted."""

from types import SimpleNamespace

import numpy as np
import pytest

import warpfactor as wf
from small import LINEAR, pair
from warpfactor.checks.alignment import WEAK_EVIDENCE, find_notices
from warpfactor.registration.companions import _errors
from warpfactor.show.wording import sentence


@pytest.mark.parametrize(
    ("metric", "words", "advice"),
    [("lncc", "LNCC cost 0.", "--recipe multimodal"), ("auto", "stage is uncertain", "try masks")],
)
def test_images_with_nothing_in_common_are_noticed(metric, words, advice):
    rng = np.random.default_rng(3)
    how = {**LINEAR, "linear.metric": metric}
    found = wf.register(rng.random((40, 44)), rng.random((42, 40)), recipe="affine", overrides=how)
    (text,) = found.warnings
    assert words in text
    assert advice in text
    assert found.to_dict()["warnings"] == [text]


def test_images_that_belong_together_are_not_noticed():
    made = pair((1, 48, 44), contrast="t1")
    assert not wf.register(made.fixed[0].numpy(), made.moving[0].numpy(), recipe="affine", overrides=LINEAR).notices


def test_correlation_across_contrasts_is_noticed_and_the_default_needs_no_notice(data_dir):
    images = [data_dir / "slices2d" / f"elastix_CT_2D_head_{side}.mha" for side in ("fixed", "moving")]
    (notice,) = wf.register(*images, recipe="affine", overrides={"linear.metric": "lncc"}).notices
    assert notice.facts["cost"] > 0.5
    assert not wf.register(*images, recipe="affine").notices


@pytest.mark.parametrize(
    ("metric", "evidence", "codes"),
    [("mi", 10.7, [WEAK_EVIDENCE]), ("mi", 11.6, []), ("mi", None, []), ("lncc", 5.0, [])],
)
def test_mutual_information_that_hardly_stands_out_is_noticed(metric, evidence, codes):
    stage = {"name": "affine", "metric": metric, "cost_after": 0.4, "start": "mass", "evidence": evidence}
    found = find_notices([stage], np.eye(4), (0.0, 0.0))
    assert [notice.code for notice in found] == codes
    assert all("stage is uncertain" in sentence(notice) and "10.7" in sentence(notice) for notice in found)
    del stage["evidence"]  # as in folders of earlier versions
    assert find_notices([stage], np.eye(4), (0.0, 0.0)) == ()


@pytest.mark.parametrize("spacing_mm", [0.1, 1.0])
def test_landmarks_that_get_worse_are_counted_in_voxels_of_a_slice(spacing_mm):
    """A slice has a thickness of 1 mm whatever its pixels are."""
    grid = wf.Grid.from_spacing((16, 16), spacing_mm)
    place = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [5.0, 5.0, 0.0]]) * spacing_mm
    for shift_vox, further in ((3, 3), (0.5, 0)):
        matrix = np.eye(4)
        matrix[0, 3] = shift_vox * spacing_mm
        found = SimpleNamespace(fixed_grid=grid, transform=wf.Affine(matrix))
        assert _errors(wf.io.Landmarks(place, place), found)["further"] == further

"""Outside an image there is more of its background, unless a value is given."""

import json

import numpy as np
import pytest
import torch

import warpfactor as wf
from warpfactor.scene.object import background

SHIFT = np.array([[1.0, 0, 0, 12], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
RECIPE = wf.recipe("affine").replace({"linear.iterations": (0, 0), "linear.levels": (4, 2), "linear.metric": "lncc"})


def ct(shape=(24, 32, 32), air=-1000.0):
    z, y, x = np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij")
    body = (z**2 + y**2 + x**2 < 0.6).astype(np.float32)
    return (air + body * (1040 + 60 * np.sin(9 * x) * np.cos(7 * y))).astype(np.float32)


def test_outside_a_ct_there_is_air(tmp_path):
    found = wf.register(ct(), ct(), recipe=RECIPE, initial=SHIFT)
    assert float(found.warped.data[0, :, :, -8:].max()) == -1000
    assert found.run.outside == (-1000.0,)
    saved = json.loads((found.save(tmp_path / "out") / "result.json").read_text())
    assert saved["moving"]["outside_values"] == [-1000.0]
    assert float(found.apply(ct()).data.min()) == -1000
    assert float(found.apply(ct(), mode="nearest").data[0, :, :, -8:].max()) == 0


def test_a_value_that_is_given_holds():
    found = wf.register(ct(), ct(), recipe=RECIPE, initial=SHIFT, outside=5.0)
    assert float(found.warped.data[0, :, :, -8:].min()) == 5
    assert found.run.outside == (5.0,)


def test_every_channel_has_its_own():
    found = wf.register([ct(), ct(air=200.0)], [ct(), ct(air=200.0)], recipe=RECIPE, initial=SHIFT)
    assert found.warped.data[:, 0, 0, -1].tolist() == [-1000, 200]


@pytest.mark.parametrize(
    ("name", "least", "most"), [("noise", 99, 101), ("cropped", 0, 20), ("padded", -2000, -2000), ("nan", 0, 0)]
)
def test_the_background_is_what_the_border_shows(name, least, most):
    generator = torch.Generator().manual_seed(0)
    image = 500 * torch.rand((12, 20, 20), generator=generator)
    if name == "noise":
        image[[0, -1]], image[:, [0, -1]], image[:, :, [0, -1]] = 100.0, 100.0, 100.0
        image += torch.rand(image.shape, generator=generator)
    if name == "padded":
        image[:, :, :3] = -2000
    if name == "nan":
        image[:] = float("nan")
    assert least <= background(image) <= most

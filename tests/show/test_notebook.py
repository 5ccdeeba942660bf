"""Images and registrations show themselves in notebooks: a PNG that others can read, HTML that needs nothing else."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from matplotlib.image import imread

import warpfactor as wf
from small import QUICK, image, pair
from warpfactor.geometry import planes as views


class Reader(HTMLParser):
    """The tags and texts of a piece of HTML; tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.images, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attributes))
        else:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def pixels(png):
    """(h, w, 3) uint8 as matplotlib reads a PNG."""
    return (255 * imread(io.BytesIO(png), format="png")[..., :3]).round().astype(np.uint8)


@pytest.fixture(scope="module")
def found():
    made = pair()
    return wf.register(image(made.fixed, name="a <b>"), image(made.moving, name="moving"), overrides=QUICK)


def test_an_image_is_shown_as_three_planes():
    shown = pixels(image(pair().fixed)._repr_png_())
    height, width, _ = shown.shape
    assert height <= views.PIXELS
    assert width > 2 * height
    assert np.array_equal(shown[..., 0], shown[..., 1])
    assert shown.min() == 0
    assert shown.max() == 255


def test_a_slice_is_shown_as_it_is():
    values = np.arange(12 * 16, dtype=np.float32).reshape(12, 16)
    shown = pixels(wf.Image.from_array(values)._repr_png_())
    assert shown.shape == (180, 240, 3)
    corners = shown[0, 0, 0], shown[0, -1, 0], shown[-1, 0, 0], shown[-1, -1, 0]
    assert corners[0] < corners[1] < corners[2] < corners[3]


def test_thick_slices_are_not_squeezed():
    grid = wf.Grid.from_spacing((4, 8), (5.0, 1.0))
    assert pixels(wf.Image(torch.rand((1, 1, 4, 8)), grid)._repr_png_()).shape == (240, 96, 3)


def test_labels_have_colours_and_no_label_is_black():
    labels = torch.tensor([[[[0, 1, 2, 3]] * 4]], dtype=torch.int32)
    shown = pixels(wf.Image(labels, wf.Grid.from_spacing((4, 4)))._repr_png_())
    colours = [tuple(shown[100, x]) for x in (30, 90, 150, 210)]
    assert colours[0] == (0, 0, 0)
    assert len(set(colours)) == 4


def test_three_channels_are_red_green_and_blue():
    data = torch.zeros((3, 1, 4, 4))
    data[0, 0, :, :2] = 1.0
    shown = pixels(wf.Image(data, wf.Grid.from_spacing((4, 4)))._repr_png_())
    assert tuple(shown[10, 10]) == (255, 0, 0)
    assert tuple(shown[10, -10]) == (0, 0, 0)


@pytest.mark.parametrize("value", [0.0, 7.0, float("nan")])
def test_images_without_contrast_are_shown_too(value):
    shown = pixels(wf.Image(torch.full((1, 4, 4, 4), value), wf.Grid.from_spacing((4, 4, 4)))._repr_png_())
    assert shown.shape[2] == 3


def test_not_a_number_is_black_and_does_not_set_the_scale():
    data = torch.rand((1, 1, 8, 8))
    data[0, 0, 0, 0], data[0, 0, 7, 7] = torch.nan, torch.inf
    shown = pixels(wf.Image(data, wf.Grid.from_spacing((8, 8)))._repr_png_())
    assert shown[0, 0, 0] == 0
    assert shown[-1, -1, 0] == 255
    assert 60 < shown.mean() < 200


def test_html_of_an_image_holds_its_picture_and_says_what_it_is():
    shown = image(pair().fixed, name="fixed & more")
    reader = Reader(shown._repr_html_())
    (picture,) = reader.images
    assert base64.b64decode(picture["src"].removeprefix("data:image/png;base64,")) == shown._repr_png_()
    assert "fixed & more" in picture["alt"]
    assert "".join(reader.texts) == repr(shown)


def test_html_of_a_registration_has_its_figures_and_the_warped_image(found):
    text = found._repr_html_()
    reader = Reader(text)
    shown = " ".join(reader.texts)
    for part in ("default", found.status, "affine", "deformable", "folded voxels", "SD of log Jacobian"):
        assert part in shown
    assert "moving warped onto a <b>" in shown
    assert "b" not in reader.tags
    assert len(reader.images) == 1
    assert not re.search(r"https?://|<script", text)


def test_results_have_a_picture_and_a_short_name(found, tmp_path):
    assert found._repr_png_() == found.warped._repr_png_()
    saved = wf.read_result(found.save(tmp_path / "out", report=False))
    assert repr(saved) == f"SavedResult({tmp_path / 'out'}: moving onto a <b>, default; {found.status})"


def test_html_of_a_doubtful_registration_says_so():
    rng = np.random.default_rng(3)
    linear = {"linear.levels": [2], "linear.iterations": [3], "linear.starts": ["identity"]}
    odd = wf.register(rng.random((40, 44)), rng.random((42, 40)), recipe="affine", overrides=linear)
    assert "no more similar than its initialisation" in odd._repr_html_()


def test_a_picture_of_an_oblique_grid_is_made():
    turn = np.array([[0.0, 0.6, 0.8], [0.0, 0.8, -0.6], [2.0, 0.0, 0.0]])
    matrix = np.eye(4)
    matrix[:3, :3] = turn
    assert pixels(wf.Image(torch.rand((1, 5, 6, 7)), wf.Grid((5, 6, 7), matrix))._repr_png_()).shape[2] == 3

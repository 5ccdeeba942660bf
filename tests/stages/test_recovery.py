"""Every optimizer with every cost recovers the phantom's known warp from the identity, without folds."""

import functools

import pytest

from scenes import scene_of, warp
from warpfactor import measure
from warpfactor.geometry.image import Image
from warpfactor.kernels import numba as cpu
from warpfactor.optim import SGD, Adam, Demons, Paper, Pointwise, Root, Tile, Trust
from warpfactor.phantom import phantom
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC, MI, MSE

SHAPES = {"3-D": (40, 48, 44), "2-D": (1, 112, 96)}
METRICS = {
    "mse": (MSE(), "t1", 0.5),
    "lncc": (LNCC(5), "t1", 0.5),
    "mi-inverted": (MI(), "inverted", 1.0),
    "mi-t2": (MI(), "t2", 1.0),
}
RELATIVE = Paper(initial=0.4, relative=True)
OPTIMIZERS = {
    "pointwise": {"optimizer": Pointwise(), "damping": RELATIVE},
    "tile": {"optimizer": Tile(tile_size=3), "damping": RELATIVE},
    "root": {"optimizer": Root(), "damping": Trust(), "step": 1.0},
    "adam": {"optimizer": Adam(), "damping": RELATIVE, "step": 0.25},
    "sgd": {"optimizer": SGD(), "damping": RELATIVE, "step": 0.5},
    "demons": {"optimizer": Demons(), "damping": RELATIVE},
}
PAIRS = [(o, m) for o in OPTIMIZERS for m in METRICS if o != "demons"] + [("demons", "mse")]
# Each pair in a volume or in a slice, in turn, so that every optimizer and every metric meets both; demons in both.
CASES = [(*both, tuple(SHAPES)[(n + n // 4) % 2]) for n, both in enumerate(PAIRS)] + [("demons", "mse", "3-D")]


@functools.cache
def pair(shape, contrast):
    truth = phantom(shape, contrast=contrast, bias=0.0, noise=0.02)
    return truth, scene_of(Image.from_array(truth.fixed), Image.from_array(truth.moving))


def recover(shape, metric, contrast, **options):
    truth, scene = pair(shape, contrast)
    options = {"sigma_grad": 1.5, "sigma_warp": 0.5, "levels": (2, 1), "iterations": (80, 40), **options}
    result = warp(scene, Deformable(metric=metric, **options))
    error = measure.displacement_error(result.displacement, truth.displacement, truth.mask)
    return result, error


@pytest.mark.parametrize(("optimizer", "metric", "dimension"), CASES)
def test_known_warp_is_recovered(optimizer, metric, dimension):
    settings, contrast, limit = METRICS[metric]
    result, error = recover(SHAPES[dimension], settings, contrast, **OPTIMIZERS[optimizer])
    assert error.mean < limit
    assert float(cpu.jacobian_determinant(result.displacement).min()) > 0
    coarse = [r.cost for r in result.records if r.level == 2 and r.accepted]
    assert coarse[-1] < coarse[0]

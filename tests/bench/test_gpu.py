"""The GPU kernels compiled ahead of time, without a GPU, and what the models of traffic and memory predict."""

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90", "gfx942"])
def test_no_kernel_spills(target):
    """The usual variant of every kernel; `warpfactor bench gpu` compiles all."""
    from warpfactor.bench.gpu.compile import MOST_SPILLED, compile_usual

    found = list(compile_usual(target))
    assert len(found) > 20
    assert [each for each in found if each.spilled > MOST_SPILLED] == []


def test_every_kernel_is_in_the_catalogue():
    import importlib
    import pkgutil

    from warpfactor.kernels import triton
    from warpfactor.kernels.triton.catalogue import KERNELS
    from warpfactor.kernels.triton.kernel import Kernel

    found = set()
    for module in pkgutil.iter_modules(triton.__path__):
        names = vars(importlib.import_module(f"{triton.__name__}.{module.name}"))
        found |= {each.name for each in names.values() if isinstance(each, Kernel)}
    assert found == {each.name for each in KERNELS}


def test_predictions_follow_from_the_bytes_that_kernels_declare():
    from warpfactor.bench.gpu.memory import level_bytes
    from warpfactor.bench.gpu.traffic import DEVICES, VOLUME, bytes_per_voxel, iteration, predicted_ms

    launches = iteration("lncc", "root, pointwise")
    assert bytes_per_voxel(launches, cached=True) == 112
    assert bytes_per_voxel(launches, cached=False) == 228
    assert bytes_per_voxel(iteration("lncc", "root, pointwise", one_by_one=True), cached=True) == 112 + 24
    assert [bytes_per_voxel(VOLUME, cached=cached) for cached in (True, False)] == [20, 28]
    slowest = DEVICES[0]
    assert predicted_ms(slowest, (192,) * 3) == pytest.approx(1e3 * 228 * 192**3 / (0.8 * slowest.bandwidth))
    assert bytes_per_voxel(iteration("lncc", "adam"), cached=True) == 112 + 48
    lm, adam = (level_bytes((256,) * 3, "lncc", step) for step in ("root, pointwise", "adam"))
    assert adam - lm == 24 * 256**3

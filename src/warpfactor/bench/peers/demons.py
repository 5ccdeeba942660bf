"""SimpleITK: affine registration with mutual information, then demons with fast symmetric forces.

Demons compares intensities on one grid, so the moving image is resampled by the affine once, and its histogram is
matched. The result is the warp followed by the affine, as for every method.
"""

from __future__ import annotations

from typing import Any

from warpfactor.bench.peers.base import Peer
from warpfactor.bench.run.task import Task, TaskResult
from warpfactor.geometry import itk
from warpfactor.geometry.itk import sitk
from warpfactor.geometry.transform import Affine, Chain, Warp

_SETTINGS = {"iterations": "100x50x25", "sigma": 1.5, "shrink": "4x2x1", "affine_iterations": 200, "seed": 1}
_BINS, _SHARE = 32, 0.2  # mutual information of the affine: histogram bins, fraction of sampled voxels
_FEW = 20_000  # voxels below which all are sampled; a fifth of a small slice would not fill the histogram
_MATCH = (256, 15)  # histogram matching: number of levels and of match points


def _run(task: Task) -> TaskResult:
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(task.threads)
    fixed, moving = (sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (task.case.fixed, task.case.moving))
    affine = _affine(fixed, moving, task.settings)
    near = sitk.Resample(moving, fixed, affine, sitk.sitkLinear, 0.0)
    near = sitk.HistogramMatching(near, fixed, *_MATCH, True)
    field = _demons(fixed, near, task.settings)
    return TaskResult(lambda: _transform(field, affine))


def _transform(field: Any, affine: Any) -> Chain:
    linear = affine.GetNthTransform(affine.GetNumberOfTransforms() - 1).Downcast()
    matrix = itk.matrix_from_sitk(linear)
    return Chain(
        (Warp(*itk.field_from_sitk(field)), Affine(matrix, dimension=linear.GetDimension())), "fixed", "moving"
    )


def _affine(fixed: Any, moving: Any, how: Any) -> Any:
    """Affine from centres of mass, with Mattes mutual information on three levels."""
    ndim = fixed.GetDimension()
    start = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.AffineTransform(ndim), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(_BINS)
    if fixed.GetNumberOfPixels() > _FEW:
        method.SetMetricSamplingStrategy(method.RANDOM)
        method.SetMetricSamplingPercentage(_SHARE, int(how["seed"]))
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsGradientDescent(1.0, int(how["affine_iterations"]), 1e-6, 10)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2, 1, 0])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOff()
    method.SetInitialTransform(start, inPlace=False)
    return sitk.CompositeTransform(method.Execute(fixed, moving))


def _demons(fixed: Any, near: Any, how: Any) -> Any:
    """Displacement in LPS millimetres on the fixed grid, from coarse to fine."""
    method = sitk.FastSymmetricForcesDemonsRegistrationFilter()
    method.SetStandardDeviations(float(how["sigma"]))
    field = None
    for shrink, iterations in zip(_numbers(how["shrink"]), _numbers(how["iterations"]), strict=True):
        level = [_shrunk(image, shrink) for image in (fixed, near)]
        method.SetNumberOfIterations(iterations)
        if field is None:
            field = method.Execute(*level)
        else:
            field = method.Execute(*level, sitk.Resample(field, level[0], sitk.Transform(), sitk.sitkLinear))
    return sitk.Cast(sitk.Resample(field, fixed, sitk.Transform(), sitk.sitkLinear), sitk.sitkVectorFloat64)


def _shrunk(image: Any, factor: int) -> Any:
    if factor == 1:
        return image
    smooth = sitk.SmoothingRecursiveGaussian(image, [0.5 * factor * s for s in image.GetSpacing()])
    return sitk.Shrink(smooth, [min(factor, max(1, n // 8)) for n in image.GetSize()])


def _numbers(text: Any) -> list[int]:
    return [int(part) for part in str(text).split("x")]


DEMONS = Peer(
    name="demons",
    description="SimpleITK fast symmetric forces demons after its affine, 100x50x25 iterations.",
    module="SimpleITK",
    package="SimpleITK",
    settings=_SETTINGS,
    run=_run,
    takes_masks=False,
)

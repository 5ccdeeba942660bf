"""Measures of the quality of a registration: overlap, distances, Jacobian, inverse error, similarity.

Every function takes tensors or numpy arrays. Distances have the unit of the input: mm for points and surfaces, voxels
for displacements.

    >>> import warpfactor as wf
    >>> made = wf.phantom.phantom((24, 24, 24))
    >>> overlap = wf.measure.dice(made.fixed_labels, made.moving_labels)
    >>> all(0 <= score <= 1 for score in overlap.values())
    True
"""

from warpfactor.measure.displacement import ErrorFigures, displacement_error, inverse_consistency
from warpfactor.measure.distances import TargetErrors, hausdorff95, surface_distances, target_registration_error
from warpfactor.measure.information import mutual_information, ncc
from warpfactor.measure.jacobian import LOG_JACOBIAN_RANGE, JacobianFigures, jacobian_figures
from warpfactor.measure.overlap import DiceFigures, dice, dice_figures

__all__ = [
    "LOG_JACOBIAN_RANGE",
    "DiceFigures",
    "ErrorFigures",
    "JacobianFigures",
    "TargetErrors",
    "dice",
    "dice_figures",
    "displacement_error",
    "hausdorff95",
    "inverse_consistency",
    "jacobian_figures",
    "mutual_information",
    "ncc",
    "surface_distances",
    "target_registration_error",
]

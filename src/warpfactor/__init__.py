"""warpfactor: smooth, invertible registration of medical images.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

__version__ = "0.2.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # messages go where the program wants them

_SOURCES = {
    "Affine": "geometry.transform",
    "Cancelled": "errors",
    "Bending": "terms",
    "Chain": "geometry.transform",
    "Companions": "registration.companions",
    "Custom": "terms",
    "Deformable": "stages.settings",
    "FileError": "errors",
    "FolderInUseError": "errors",
    "Grid": "geometry.grid",
    "Image": "geometry.image",
    "ImagePair": "registration.guides",
    "InputError": "errors",
    "LNCC": "terms",
    "LabelPair": "registration.guides",
    "LandmarkPair": "registration.guides",
    "LinearSettings": "stages.linear.stage",
    "Linearization": "terms",
    "Longitudinal": "followup",
    "MI": "terms",
    "MIND": "terms",
    "MSE": "terms",
    "Mixed": "terms",
    "Notice": "errors",
    "OutOfMemoryError": "errors",
    "Recipe": "recipebook.recipe",
    "RankError": "errors",
    "Ranks": "ranks.crew",
    "Registration": "registration.result",
    "VolumeChange": "terms",
    "Velocity": "geometry.velocity",
    "Warp": "geometry.transform",
    "WarpfactorError": "errors",
    "Weighted": "terms",
    "longitudinal": "followup",
    "mean_velocity": "geometry.velocity",
    "mean_warp": "geometry.velocity",
    "power": "geometry.velocity",
    "read_image": "io",
    "read_labels": "io",
    "read_result": "registration.folder",
    "read_transform": "io",
    "read_velocity": "io",
    "recipe": "recipebook.files",
    "recipes": "recipebook.files",
    "register": "registration.run",
    "register_batch": "registration.batch",
    "write_image": "io",
    "write_transform": "io",
    "write_velocity": "io",
}
_MODULES = {
    "cohort": "cohort",
    "io": "io",
    "kernels": "kernels",
    "measure": "measure",
    "morphometry": "cohort.morphometry",
    "optim": "optim",
    "phantom": "phantom",
    "plot": "show.plot",
    "quality": "measure",  # its name in version 0.1
    "report": "registration.report",
    "template": "cohort.template",
}

if TYPE_CHECKING:
    from warpfactor import cohort, io, kernels, measure, optim, phantom
    from warpfactor import measure as quality
    from warpfactor.cohort import morphometry, template
    from warpfactor.errors import (
        Cancelled,
        FileError,
        FolderInUseError,
        InputError,
        Notice,
        OutOfMemoryError,
        RankError,
        WarpfactorError,
    )
    from warpfactor.followup import Longitudinal, longitudinal
    from warpfactor.geometry.grid import Grid
    from warpfactor.geometry.image import Image
    from warpfactor.geometry.transform import Affine, Chain, Warp
    from warpfactor.geometry.velocity import Velocity, mean_velocity, mean_warp, power
    from warpfactor.io import (
        read_image,
        read_labels,
        read_transform,
        read_velocity,
        write_image,
        write_transform,
        write_velocity,
    )
    from warpfactor.ranks.crew import Ranks
    from warpfactor.recipebook.files import recipe, recipes
    from warpfactor.recipebook.recipe import Recipe
    from warpfactor.registration import report
    from warpfactor.registration.batch import register_batch
    from warpfactor.registration.companions import Companions
    from warpfactor.registration.folder import read_result
    from warpfactor.registration.guides import ImagePair, LabelPair, LandmarkPair
    from warpfactor.registration.result import Registration
    from warpfactor.registration.run import register
    from warpfactor.show import plot
    from warpfactor.stages.linear.stage import LinearSettings
    from warpfactor.stages.settings import Deformable
    from warpfactor.terms import LNCC, MI, MIND, MSE, Bending, Custom, Linearization, Mixed, VolumeChange, Weighted

__all__ = [
    "LNCC",
    "MI",
    "MIND",
    "MSE",
    "Affine",
    "Bending",
    "Cancelled",
    "Chain",
    "Companions",
    "Custom",
    "Deformable",
    "FileError",
    "FolderInUseError",
    "Grid",
    "Image",
    "ImagePair",
    "InputError",
    "LabelPair",
    "LandmarkPair",
    "LinearSettings",
    "Linearization",
    "Longitudinal",
    "Mixed",
    "Notice",
    "OutOfMemoryError",
    "RankError",
    "Ranks",
    "Recipe",
    "Registration",
    "Velocity",
    "VolumeChange",
    "Warp",
    "WarpfactorError",
    "Weighted",
    "cohort",
    "io",
    "kernels",
    "longitudinal",
    "mean_velocity",
    "mean_warp",
    "measure",
    "morphometry",
    "optim",
    "phantom",
    "plot",
    "power",
    "quality",
    "read_image",
    "read_labels",
    "read_result",
    "read_transform",
    "read_velocity",
    "recipe",
    "recipes",
    "register",
    "register_batch",
    "report",
    "template",
    "write_image",
    "write_transform",
    "write_velocity",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"warpfactor.{_MODULES[name]}")
    if name not in _SOURCES:
        raise AttributeError(f"module 'warpfactor' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"warpfactor.{_SOURCES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

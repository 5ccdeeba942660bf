"""warpfactor: smooth, invertible registration of medical images.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_SOURCES = {
    "Affine": "transform",
    "Chain": "transform",
    "Custom": "similarity",
    "Deformable": "register.settings",
    "FileError": "errors",
    "Grid": "grid",
    "Image": "image",
    "InputError": "errors",
    "LNCC": "similarity",
    "LinearSettings": "register.linear",
    "MI": "similarity",
    "MSE": "similarity",
    "Recipe": "register.recipe",
    "Registration": "register.result",
    "Warp": "transform",
    "WarpfactorError": "errors",
    "read_image": "io",
    "read_labels": "io",
    "read_result": "register.saved",
    "read_transform": "io",
    "recipe": "register.recipes",
    "recipes": "register.recipes",
    "write_image": "io",
    "write_transform": "io",
}
# `register` can be called, see register/__init__.py.
_MODULES = ("io", "kernels", "phantom", "plot", "quality", "register", "report")

if TYPE_CHECKING:
    from warpfactor import io, kernels, phantom, plot, quality, report
    from warpfactor.errors import FileError, InputError, WarpfactorError
    from warpfactor.grid import Grid
    from warpfactor.image import Image
    from warpfactor.io import read_image, read_labels, read_transform, write_image, write_transform
    from warpfactor.register.api import register
    from warpfactor.register.linear import LinearSettings
    from warpfactor.register.recipe import Recipe
    from warpfactor.register.recipes import recipe, recipes
    from warpfactor.register.result import Registration
    from warpfactor.register.saved import read_result
    from warpfactor.register.settings import Deformable
    from warpfactor.similarity import LNCC, MI, MSE, Custom
    from warpfactor.transform import Affine, Chain, Warp

__all__ = [
    "LNCC",
    "MI",
    "MSE",
    "Affine",
    "Chain",
    "Custom",
    "Deformable",
    "FileError",
    "Grid",
    "Image",
    "InputError",
    "LinearSettings",
    "Recipe",
    "Registration",
    "Warp",
    "WarpfactorError",
    "io",
    "kernels",
    "phantom",
    "plot",
    "quality",
    "read_image",
    "read_labels",
    "read_result",
    "read_transform",
    "recipe",
    "recipes",
    "register",
    "report",
    "write_image",
    "write_transform",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"warpfactor.{name}")
    if name not in _SOURCES:
        raise AttributeError(f"module 'warpfactor' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"warpfactor.{_SOURCES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

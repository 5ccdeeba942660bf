"""The recipes that come with the package: this table is the only place where their numbers are."""

from __future__ import annotations

from dataclasses import replace

from warpfactor.optim import Convergence, Paper, Pointwise, Root, Trust
from warpfactor.recipebook.recipe import Recipe
from warpfactor.stages.linear.stage import LinearSettings
from warpfactor.stages.settings import Deformable
from warpfactor.terms import LNCC, MIND, Mixed

_RIGID = LinearSettings(dof="rigid", metric="auto")
_AFFINE = LinearSettings(dof="affine", metric="auto")

_WARP = Deformable(
    metric=LNCC((3, 3, 5), symmetric=True),
    optimizer=Root(),
    damping=Trust(initial=8, floor=8, copy_finest=False),
    step=1.0,
    sigma_grad=1.2,
    sigma_warp=0.63,
    tail=(0.3, 4.0),
    shading=2.0,
    levels=(4, 2, 1),
    iterations=(60, 30, 10),
)
# What adapts: how wide to smooth and when to stop follow from the force, levels and iterations from the size.
_ADAPTIVE = replace(
    _WARP,
    metric=LNCC(5, symmetric=True, flat=0.003),
    sigma_grad=1.4,
    sigma_warp=0.42,
    reach=1.8,
    heavy=0.7,
    broad_from=1.65,
    agreement=0.3,
    volume=0.5,
    blur=0.5,
    truncate=2.5,
    iterations=(60, 30, 12),
    coarsest=32,
    meant_for=180,
)
# Organs that move far and smoothly: one more level, wider smoothing, more iterations.
_SMOOTH = replace(
    _WARP,
    metric=LNCC(5, symmetric=True, flat=0.003),
    sigma_grad=2.0,
    sigma_warp=1.0,
    levels=(8, 4, 2, 1),
    iterations=(60, 60, 40, 20),
)
# The liver slides past its surroundings: longer steps, a heavy tail, and only the moving image pulls.
_ABDOMEN = replace(
    _SMOOTH,
    metric=LNCC(5, flat=0.003),
    damping=Trust(initial=0.3, floor=0.3, reject=False),
    step=3.0,
    tail=(0.7, 4.0),
    volume=0.5,
    blur=0.5,
    iterations=(60, 60, 60, 80),
)
_LUNG = replace(
    _SMOOTH,
    metric=LNCC((7, 7, 7, 9), symmetric=True, flat=0.003),
    sigma_grad=1.6,
    blur=0.5,
    iterations=(40, 40, 25, 15),
)
# Where the force turns out to vary slowly (templates, lungs, brains of mice): wide windows, smooth warps.
_BROAD = replace(
    _LUNG,
    damping=Trust(initial=4, floor=4, copy_finest=False),
    tail=(0.5, 4.0),
    volume=0.5,
    coarsest=18,
)
# Across contrasts: self-similarity is rougher than correlation, and smoother warps are the better ones. Its cost falls
# so unevenly that rejecting each step that raised it ends levels early.
_ACROSS = replace(
    _LUNG,
    metric=MIND(),
    damping=Trust(initial=4, floor=4, reject=False),
    shading=0.0,
    sigma_warp=1.4,
    volume=0.5,
)
_ACROSS_PLANAR = replace(_ACROSS, metric=Mixed(), sigma_grad=4.0, sigma_warp=4.0)
_PAPER = Deformable(
    metric=LNCC(7, exact=False, flat=1e-5, noise=0.0),
    optimizer=Pointwise(),
    damping=Paper(),
    step=0.375,
    sigma_grad=1.0,
    sigma_warp=0.5,
    smoothing="full",
    units="normalized",
    boundary="zero",
    truncate=2.0,
    blur=0.5,
    convergence=Convergence(slope=1e-6, window=10),
    levels=(4, 2, 1),
    iterations=(200, 100, 50),
)

_TABLE = (
    Recipe(
        "default",
        "Affine, then a warp by local correlation, or by self-similarity if the contrasts differ, as smooth as the "
        "images show.",
        (_AFFINE,),
        _ADAPTIVE,
        _BROAD,
        _ACROSS,
        _ACROSS_PLANAR,
    ),
    Recipe(
        "brain",
        "Brains of one contrast, between people or to a template.",
        (_AFFINE,),
        replace(_ADAPTIVE, broad_from=0.0),
    ),
    Recipe("lung", "CT of the chest: long, smooth motion.", (_AFFINE,), _LUNG),
    Recipe("abdomen", "MR or CT of the abdomen over breathing: long, smooth motion.", (_AFFINE,), _ABDOMEN),
    Recipe(
        "multimodal",
        "Images of different contrast, such as T1 and T2 or CT and MR, by self-similarity.",
        (_AFFINE,),
        _ACROSS,
        None,
        _ACROSS,
        _ACROSS_PLANAR,
    ),
    Recipe(
        "paper",
        "The factored Levenberg-Marquardt optimizer with the numbers and conventions of its paper.",
        (_AFFINE,),
        _PAPER,
    ),
    Recipe(
        "fast",
        "As default with fewer iterations.",
        (_AFFINE,),
        replace(_ADAPTIVE, iterations=(30, 15, 6)),
        replace(_BROAD, iterations=(20, 20, 12, 8)),
        replace(_ACROSS, iterations=(20, 20, 12, 8)),
        replace(_ACROSS_PLANAR, iterations=(20, 20, 12, 8)),
    ),
    Recipe(
        "accurate",
        "As default with more iterations.",
        (_AFFINE,),
        replace(_ADAPTIVE, iterations=(100, 60, 24)),
        replace(_BROAD, iterations=(60, 60, 40, 30)),
        replace(_ACROSS, iterations=(60, 60, 40, 30)),
        replace(_ACROSS_PLANAR, iterations=(60, 60, 40, 30)),
    ),
    Recipe(
        "symmetric",
        "As default, but both images move to the middle, so that exchanged images give the inverse.",
        (replace(_AFFINE, symmetric=True),),
        replace(_ADAPTIVE, method="symmetric"),
        replace(_BROAD, method="symmetric"),
        replace(_ACROSS, method="symmetric"),
        replace(_ACROSS_PLANAR, method="symmetric"),
    ),
    Recipe(
        "velocity",
        "As symmetric, with a stationary velocity field, from which powers, means and the inverse of the warp are "
        "computed.",
        (replace(_AFFINE, symmetric=True),),
        replace(_ADAPTIVE, method="velocity"),
        replace(_BROAD, method="velocity"),
        replace(_ACROSS, method="velocity"),
        replace(_ACROSS_PLANAR, method="velocity"),
    ),
    Recipe(
        "longitudinal",
        "Scans of one person: a rigid transform, then a warp, which treat both scans alike.",
        (replace(_RIGID, symmetric=True),),
        replace(
            _ADAPTIVE, method="symmetric", step=0.25, volume=0.0, heavy=0.0, broad_from=0.0
        ),  # small changes, to be seen in full
    ),
    Recipe("rigid", "Rotation and translation only.", (_RIGID,)),
    Recipe("affine", "Rotation, translation, scale and shear, no warp.", (_AFFINE,)),
)

RECIPES = {recipe.name: recipe for recipe in _TABLE}
ALIASES = {"syn": "symmetric"}  # other names by which recipes are found

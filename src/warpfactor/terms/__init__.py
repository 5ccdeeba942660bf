"""Costs of unlikeness between the fixed and the warped moving image; one metric per file."""

from warpfactor.terms.base import Cost, Linearization, Pair, Similarity, in_single
from warpfactor.terms.custom import Custom
from warpfactor.terms.lncc import LNCC
from warpfactor.terms.mi import MI
from warpfactor.terms.mse import MSE

METRICS = {"lncc": LNCC, "mse": MSE, "mi": MI}

__all__ = ["LNCC", "METRICS", "MI", "MSE", "Cost", "Custom", "Linearization", "Pair", "Similarity", "in_single"]

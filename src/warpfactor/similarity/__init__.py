"""Costs of unlikeness between the fixed and the warped moving image; one metric per file."""

from warpfactor.similarity.base import Cost, Linearization, Pair, Similarity, in_single
from warpfactor.similarity.custom import Custom
from warpfactor.similarity.lncc import LNCC
from warpfactor.similarity.mi import MI
from warpfactor.similarity.mse import MSE

METRICS = {"lncc": LNCC, "mse": MSE, "mi": MI}

__all__ = ["LNCC", "METRICS", "MI", "MSE", "Cost", "Custom", "Linearization", "Pair", "Similarity", "in_single"]

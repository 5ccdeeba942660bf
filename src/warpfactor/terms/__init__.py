"""What is minimised: metrics between the images, one per file, and other terms; a new one is a file and a line here."""

from warpfactor.terms.base import Linearization, Prepared, Term
from warpfactor.terms.custom import Custom
from warpfactor.terms.labels import LabelTerm
from warpfactor.terms.landmarks import LandmarkTerm
from warpfactor.terms.lncc import LNCC
from warpfactor.terms.mi import MI
from warpfactor.terms.mind import MIND
from warpfactor.terms.mixed import Mixed
from warpfactor.terms.mse import MSE
from warpfactor.terms.pair import PairTerm
from warpfactor.terms.regularity import Bending, VolumeChange
from warpfactor.terms.sum import Sum, Weighted

METRICS = {"lncc": LNCC, "mse": MSE, "mi": MI, "mind": MIND, "mixed": Mixed}
REGULARITY = {"bending": Bending, "volume": VolumeChange}  # terms of the warp alone, which need no data

__all__ = [
    "LNCC",
    "METRICS",
    "MI",
    "MIND",
    "MSE",
    "REGULARITY",
    "Bending",
    "Custom",
    "LabelTerm",
    "LandmarkTerm",
    "Linearization",
    "Mixed",
    "PairTerm",
    "Prepared",
    "Sum",
    "Term",
    "VolumeChange",
    "Weighted",
]

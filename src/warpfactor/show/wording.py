"""Sentences for people, made from codes and facts; between the layers of the package only these travel."""

from warpfactor.stages.stage import Ending

_ENDINGS = {
    Ending.CONVERGED: "Converged: no further step promises to lower the cost.",
    Ending.LIMIT: "Finished: the iterations ran out before the cost had flattened.",
    Ending.STALLED: "Finished: no step lowered the cost any more.",
    Ending.ROSE: "Stopped where the cost began to rise, as the stopping rule of the recipe says.",
    Ending.INTERRUPTED: "Interrupted; this is the best result so far.",
    Ending.SKIPPED: "Left out, as it has the same shape as the next level.",
    Ending.WORSE: "The warp made the images less alike and was left out; the result is the transform it started from.",
    Ending.NOTHING: "Nothing was asked for beyond the initial transform.",
}


def ending_sentence(ending: Ending, stage: str = "") -> str:
    """Why a stage of that name ended, in a sentence."""
    return _ENDINGS[ending]

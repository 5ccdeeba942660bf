"""One person, several scans: a space between them that favours none, and maps of what changed."""

from warpfactor.followup.result import Change, LabelChange, Longitudinal
from warpfactor.followup.run import longitudinal

__all__ = ["Change", "LabelChange", "Longitudinal", "longitudinal"]

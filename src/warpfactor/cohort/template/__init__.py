"""Unbiased templates of a group of images; this package is `warpfactor.template`."""

from warpfactor.cohort.template.builder import GroupTemplate, build
from warpfactor.cohort.template.iteration import TemplateIteration
from warpfactor.cohort.template.settings import TemplateSettings

__all__ = ["GroupTemplate", "TemplateIteration", "TemplateSettings", "build"]

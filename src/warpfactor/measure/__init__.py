"""Figures that say how good and how regular a registration is."""

"""Units of length that image files name, in millimetres."""

from __future__ import annotations

# What microscopes and programs write; a micron sign has two code points, and ImageJ escapes it.
UNITS_MM = {
    **dict.fromkeys(("nm", "nanometer", "nanometre"), 1e-6),
    **dict.fromkeys(("um", "µm", "μm", "micron", "microns", "micrometer", "micrometre", "\\u00b5m"), 1e-3),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1.0),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), 10.0),
    **dict.fromkeys(("m", "meter", "metre"), 1e3),
    **dict.fromkeys(("inch", "inches", "in"), 25.4),
    **dict.fromkeys(("a", "å", "angstrom"), 1e-7),
}


def unit_mm(name: str) -> float | None:
    """Millimetres of a unit of length; None if it is not known."""
    return UNITS_MM.get(name.strip().lower())

"""Transform files of ITK: whether every transform in a .tfm, .txt or .mat file has all of its parameters."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from warpfactor.io.headers.payload import TRUNCATED, DamageError, finite_numbers

_FIRST_LINE = "#Insight Transform File"
_KIND = re.compile(r"([A-Za-z0-9]+)_(?:double|float)_([234])_([234])")
_FIXED = "fixed"
_LONGEST_NAME = 256
_NOT_ONE = "it is not an ITK transform file; check the program that wrote it"


class TransformPart(NamedTuple):
    """One transform of a file.

    Attributes:
        kind: its class, number type and dimensions, such as AffineTransform_double_3_3.
        parameters, fixed: what the file has of them; None if it has no such entry.
    """

    kind: str
    parameters: Sequence[float] | None
    fixed: Sequence[float] | None


def check_transform_file(path: Path) -> None:
    """Raise a DamageError about a file that is cut, or whose parameters do not fit their kind."""
    content = path.read_bytes()
    parts = _text_parts(content) if content.lstrip().startswith(b"#") else _binary_parts(content)
    if not parts:
        raise DamageError(TRUNCATED)
    for part in parts:
        _check_part(part)


def _text_parts(content: bytes) -> list[TransformPart]:
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DamageError(_NOT_ONE) from error
    if not text.lstrip().startswith(_FIRST_LINE):
        raise DamageError(_NOT_ONE)
    if not text.endswith("\n"):  # a number may have lost its last digits
        raise DamageError(
            "its last line does not end with a line break, so it may be truncated; copy it again, or add the line break"
        )
    parts = list[TransformPart]()
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if line.startswith("#") or not line.strip():
            continue
        if colon and key == "Transform":
            parts.append(TransformPart(value.strip(), None, None))
        elif colon and key in ("Parameters", "FixedParameters") and parts:
            values, last = finite_numbers(value, key), parts[-1]
            parts[-1] = last._replace(parameters=values) if key == "Parameters" else last._replace(fixed=values)
        else:
            raise DamageError(f"it has the line {line[:40]!r}, which is not part of a transform; correct it")
    return parts


def _binary_parts(content: bytes) -> list[TransformPart]:
    """The matrices of a MATLAB file of version 4: the parameters under the name of the kind, and "fixed"."""
    parts, place = list[TransformPart](), 0
    while place < len(content):
        name, values, place = _matrix(content, place)
        if name == _FIXED and parts and parts[-1].fixed is None:
            parts[-1] = parts[-1]._replace(fixed=values)
        else:
            parts.append(TransformPart(name, values, None))
    return parts


def _matrix(content: bytes, place: int) -> tuple[str, tuple[float, ...], int]:
    if len(content) < place + 20:
        raise DamageError(TRUNCATED)
    order = "<" if abs(struct.unpack_from("<i", content, place)[0]) < 1 << 16 else ">"
    kind, rows, columns, imaginary, length = struct.unpack_from(f"{order}5i", content, place)
    if kind % 1000 not in (0, 10) or imaginary or min(rows, columns) < 0 or not 1 < length <= _LONGEST_NAME:
        raise DamageError(_NOT_ONE)
    letter, size = ("f", 4) if kind % 1000 else ("d", 8)
    start, count = place + 20 + length, rows * columns
    if len(content) < start + count * size:
        raise DamageError(TRUNCATED)
    try:
        name = content[place + 20 : start].split(b"\0")[0].decode("ascii")
    except UnicodeDecodeError as error:
        raise DamageError(_NOT_ONE) from error
    return name, struct.unpack_from(f"{order}{count}{letter}", content, start), start + count * size


def _check_part(part: TransformPart) -> None:
    found = _KIND.fullmatch(part.kind)
    if found is None:
        raise DamageError(f"it has a transform of the kind {part.kind[:40]!r}, which ITK does not have; check the file")
    name, axes = found[1], int(found[2])
    if name == "CompositeTransform":
        return
    if part.parameters is None or part.fixed is None:
        raise DamageError(TRUNCATED)
    if not all(math.isfinite(value) for value in (*part.parameters, *part.fixed)):
        raise DamageError("it has a parameter that is not finite; correct it")
    wanted = _counts(axes).get(name)
    if wanted is None:
        return
    if len(part.parameters) != wanted[0]:
        raise DamageError(f"{name} has {len(part.parameters)} parameters instead of {wanted[0]}; correct it")
    if len(part.fixed) not in wanted[1:]:
        raise DamageError(f"{name} has {len(part.fixed)} fixed parameters instead of {wanted[1]}; correct it")


def _counts(axes: int) -> dict[str, tuple[int, ...]]:
    """Numbers of parameters and of fixed parameters of the linear transforms of ITK."""
    full = (axes * axes + axes, axes)
    return {
        "AffineTransform": full,
        "MatrixOffsetTransformBase": full,
        "FixedCenterOfRotationAffineTransform": full,
        "ScalableAffineTransform": full,
        "TranslationTransform": (axes, 0),
        "IdentityTransform": (0, 0),
        "ScaleTransform": (axes, axes),
        "ScaleLogarithmicTransform": (axes, axes),
        "Rigid2DTransform": (3, 2),
        "Euler2DTransform": (3, 2),
        "Similarity2DTransform": (4, 2),
        "Euler3DTransform": (6, 3, 4),  # newer files say in a fourth one in which order the angles are taken
        "VersorTransform": (3, 3),
        "VersorRigid3DTransform": (6, 3),
        "QuaternionRigidTransform": (7, 3),
        "Similarity3DTransform": (7, 3),
        "ScaleVersor3DTransform": (9, 3),
        "ScaleSkewVersor3DTransform": (15, 3),
    }

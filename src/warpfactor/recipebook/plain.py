"""Settings as plain data: frozen dataclasses to and from dictionaries, and changed by dotted names; all checked.

A field whose type has several forms (metric, optimizer, damping) is a dictionary with the form's `name`, or just that
name.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from warpfactor.errors import InputError
from warpfactor.optim import DAMPINGS, STEPS, Damping, Step
from warpfactor.stages.linear.cost import METRICS as LINEAR_METRICS
from warpfactor.terms import METRICS, Custom, Term

_T = TypeVar("_T")
_FORMS: dict[Any, tuple[str, Mapping[str, Any]]] = {
    Term: ("metric", METRICS),
    Step: ("optimizer", STEPS),
    Damping: ("damping", DAMPINGS),
}
_UNSET = object()
_LARGEST_NUMBER = 1 << 1000  # of whole numbers in place of others; Python's are unlimited
_LARGEST_WHOLE = 1 << 31  # no number of iterations, bins or voxels is above it


def parse_value(text: str) -> Any:
    """JSON if it is that, a list if there are commas, the text itself otherwise; the recipe converts and checks it."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [parse_value(part.strip()) for part in text.split(",")] if "," in text else text


def unknown(kind: str, word: str, known: Iterable[str]) -> InputError:
    """The error for a word that is none of the known ones: with the nearest, if one is near, and with all."""
    names = list(known)
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    known = f"use one of {', '.join(names)}." if names else "it has no settings."
    hint = f"did you mean {near[0]!r} (one of {', '.join(names)})?" if near else known
    return InputError(f"Unknown {kind} {word!r}; {hint}")


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, numbers, text and None; infinity, which JSON lacks, becomes the text "inf"."""
    if isinstance(value, Custom):
        return {"name": value.name, "loss": getattr(value.loss, "__qualname__", repr(value.loss))}
    if dataclasses.is_dataclass(value):
        names = sorted((f.name for f in dataclasses.fields(value)), key=lambda name: name != "name")
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: type[_T], data: Any, where: str) -> _T:
    """An instance of a settings class from what `to_plain` made of one; missing keys take their defaults.

    Args:
        where: dotted name of this part, for messages.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where} must be a table of settings, not {data!r}.")
    hints = _fields(kind)
    for name in data:
        if name not in hints:
            raise unknown(f"setting of {where}", str(name), hints)
    values = {name: convert(value, hints[name], f"{where}.{name}") for name, value in data.items()}
    _check_limits(values, kind, where.removeprefix("recipe."))
    try:
        return kind(**values)
    except TypeError as error:
        raise InputError(f"{where}: a setting is missing ({error}).") from error


def convert(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type `hint`, or an InputError that names the setting."""
    if hint in _FORMS:
        return _form(value, hint, where)
    if dataclasses.is_dataclass(hint):
        return _settings(value, cast("type[Any]", hint), where)
    if get_origin(hint) in (Union, types.UnionType):
        return _any_of(value, get_args(hint), where)
    if get_origin(hint) is tuple:
        return _tuple(value, get_args(hint), where)
    return _scalar(value, hint, where)


@dataclass
class _Node:
    """One part of the dotted names of a set of changes."""

    value: Any = _UNSET
    children: dict[str, _Node] = field(default_factory=dict)


def changed(settings: _T, changes: Mapping[str, Any], where: str) -> _T:
    """`settings` with some fields replaced, all at once, by their dotted names."""
    root = _Node()
    for key, value in changes.items():
        node = root
        for part in key.split("."):
            node = node.children.setdefault(part, _Node())
        node.value = value
    return cast(_T, _apply(settings, type(settings), root, where))


def _apply(current: Any, hint: Any, node: _Node, where: str) -> Any:
    children = dict(node.children)
    value = node.value
    if hint in _FORMS and "name" in children:
        value = children.pop("name").value
    if value is not _UNSET:
        current = convert(value, hint, where)
    if not children:
        return current
    if isinstance(current, tuple) and get_origin(hint) is tuple:
        return _apply_each(current, get_args(hint)[0], children, where)
    if not dataclasses.is_dataclass(current):
        part = "is switched off" if current is None else "is a single value"
        raise InputError(f"{where}.{next(iter(children))} cannot be set: {where} {part}.")
    hints = _fields(type(cast(Any, current)))
    for name in children:
        if name not in hints:
            raise unknown(f"setting of {where}", name, hints)
    parts = {
        name: _apply(getattr(current, name), hints[name], child, _dotted(where, name))
        for name, child in children.items()
    }
    _check_limits(parts, current, where)
    return dataclasses.replace(cast(Any, current), **parts)


def _apply_each(items: tuple[Any, ...], hint: Any, children: dict[str, _Node], where: str) -> tuple[Any, ...]:
    """A number picks one of the items; any other name is a setting of all of them."""
    common = {name: child for name, child in children.items() if not name.isdigit()}
    for name in children.keys() - common.keys():
        if int(name) >= len(items):
            raise InputError(f"{where}.{name} cannot be set: there are {len(items)} of them, counted from 0.")
    if not items:
        raise InputError(f"{where}.{next(iter(children))} cannot be set: there is no {where} stage.")
    result = []
    for number, item in enumerate(items):
        own = children.get(str(number), _Node())
        result.append(_apply(item, hint, _Node(own.value, {**common, **own.children}), f"{where}.{number}"))
    return tuple(result)


def _check_limits(given: Mapping[str, Any], before: Any, where: str) -> None:
    """InputError with an example if only the levels or only the iterations change in number.

    Args:
        given: the settings that change.
        before: what the others are: settings, or their class, which has the defaults.
    """
    if ("levels" in given) == ("iterations" in given):
        return
    name, other = ("levels", "iterations") if "levels" in given else ("iterations", "levels")
    count, values = len(given[name]), list(getattr(before, other))
    if not count or not values or count == len(values):  # levels that follow from the image take any number
        return
    fitting = values[-count:]
    while len(fitting) < count:
        fitting.insert(0, fitting[0] if other == "iterations" else 2 * fitting[0])
    example = " and ".join(f"{where}.{key}={_listed(part)}" for key, part in ((name, given[name]), (other, fitting)))
    raise InputError(
        f"{where}.{name}={_listed(given[name])} does not fit {where}.{other}={_listed(values)}: "
        f"there is one iteration limit per level; set both, for instance {example}."
    )


def _listed(values: Iterable[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def _dotted(where: str, name: str) -> str:
    return f"{where}.{name}" if where != "recipe" else name


def _fields(kind: Any) -> dict[str, Any]:
    """Types of a settings class' fields; the `name` that tells forms apart is not a setting."""
    hints = get_type_hints(kind)
    forms = {form for _, known in _FORMS.values() for form in known.values()}
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if not (f.name == "name" and kind in forms)}


def _form(value: Any, hint: Any, where: str) -> Any:
    kind, known = _FORMS[hint]
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        if dataclasses.is_dataclass(value) or hasattr(value, "prepare"):
            return value
        if callable(value):
            raise InputError(f"{where}: a function is given as wf.Custom({getattr(value, '__name__', 'function')}).")
        raise InputError(f"{where} = {value!r}: give the name of a {kind}, one of {', '.join(known)}.")
    name = str(value.get("name", ""))
    if name == "custom":
        raise InputError(f"{where}: a custom loss is a Python function; pass it from Python, a file cannot hold it.")
    if name not in known and kind == "metric" and name in LINEAR_METRICS:
        stage = where.rpartition(".")[0].removeprefix("recipe.")
        raise InputError(f"Metric {name!r} is for linear stages only; {stage} takes {', '.join(known)}.")
    if name not in known:
        raise unknown(kind, name, known)
    return from_plain(known[name], {key: part for key, part in value.items() if key != "name"}, where)


def _settings(value: Any, kind: type[Any], where: str) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping) and value.get("name") == _own_name(kind):  # there is only this form here
        value = {key: part for key, part in value.items() if key != "name"}
    named = isinstance(value, str) and "name" in _fields(kind)
    return from_plain(kind, {"name": value} if named else value, where)


def _own_name(kind: type[Any]) -> str | None:
    """The name of a class that is one form of several, such as a metric."""
    found = (name for _, known in _FORMS.values() for name, form in known.items() if form is kind)
    return next(found, None)


def _any_of(value: Any, members: tuple[Any, ...], where: str) -> Any:
    if value is None or (value == "none" and str not in members):
        if type(None) in members:
            return None
        raise InputError(f"{where} needs a value and cannot be none.")
    kinds = [member for member in members if member is not type(None)]
    for kind in kinds[:-1]:
        try:
            return convert(value, kind, where)
        except InputError:
            continue
    return convert(value, kinds[-1], where)


def _tuple(value: Any, members: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if value is None or value == "none":
        return ()
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if members[-1] is Ellipsis:
        return tuple(convert(item, members[0], where) for item in items)
    if len(items) != len(members):
        raise InputError(f"{where} = {value!r}: give {len(members)} values.")
    return tuple(convert(item, member, where) for item, member in zip(items, members, strict=True))


def _is_whole(value: float) -> bool:
    return abs(value) <= _LARGEST_WHOLE and value == int(value)


def _scalar(value: Any, hint: Any, where: str) -> Any:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    if hint is float and isinstance(value, float):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER:
        return float(value)
    if hint is float and value in ("inf", "-inf"):
        return float(value)
    if hint is int and isinstance(value, (int, float)) and not isinstance(value, bool) and _is_whole(value):
        return int(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if isinstance(value, Custom):
        raise InputError(f"{where}: a custom loss is for deformable.metric; linear stages take a metric by name.")
    raise InputError(f"{where} = {_shown(value)}: give {names.get(hint, 'another value')}.")


def _shown(value: Any) -> str:
    """A value for messages, which stay short whatever it is."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

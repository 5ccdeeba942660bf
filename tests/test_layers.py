"""The import arrows of the architecture hold: a module imports only from its own layer or from layers below."""

import ast
from pathlib import Path

import warpfactor
from layers import LAYERS

ROOT = Path(warpfactor.__file__).parent


def layer_of(parts):
    """The layer of a module's dotted name, without the package: the longest that fits."""
    names = [".".join(parts[:count]) for count in (2, 1)]
    return next((name for name in names if name in LAYERS), None)


def imported(path):
    """Names of the warpfactor layers a file imports, absolute or relative."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            prefix = ["warpfactor", *package[: len(package) - node.level + 1]] if node.level else []
            base = ".".join([*prefix, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "warpfactor" and len(parts) > 1 and layer_of(parts[1:]) is not None:
                yield layer_of(parts[1:])


def test_imports_go_downwards():
    wrong = []
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        layer = layer_of(parts)
        assert layer is not None, f"{path.name} belongs to no layer; add it to LAYERS and docs/architecture.md"
        wrong += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in imported(path)
            if LAYERS.index(name) > LAYERS.index(layer)
        ]
    assert not wrong


def test_nothing_below_cli_prints():
    printing = []
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                printing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not printing

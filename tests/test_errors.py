"""Every message to a user starts with a capital letter, or with the name of what it is about."""

import ast
from pathlib import Path

import warpfactor

ROOT = Path(warpfactor.__file__).parent
ERRORS = {"InputError", "FileError"}


def openings(path):
    """Line and first words of every message that is written out in a file; None where it starts with a name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ERRORS and node.args:
            text = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            yield node.lineno, text.value if isinstance(text, ast.Constant) else None


def test_messages_start_with_a_capital_letter():
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    found = [(name, *opening) for name, path in files.items() for opening in openings(path)]
    assert len(found) > 100
    assert not [f"{name}:{line} {text}" for name, line, text in found if text and text[0].islower()]

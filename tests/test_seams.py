"""The seams hold: nobody asks a part for its name, and one name means one class."""

import ast
from collections import Counter
from pathlib import Path

import warpfactor
from warpfactor.optim import DAMPINGS, STEPS
from warpfactor.terms import METRICS

ROOT = Path(warpfactor.__file__).parent
NAMES = {*STEPS, *DAMPINGS, *METRICS, "custom"}


def trees():
    for path in ROOT.rglob("*.py"):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_no_metric_step_or_damping_is_asked_for_its_name():
    """A new one would need an `elif` where that is done."""
    asked = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            named = any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
            values = {leaf.value for side in sides for leaf in ast.walk(side) if isinstance(leaf, ast.Constant)}
            if named and values & NAMES:
                asked.append(f"{path}:{node.lineno}")
    assert not asked


def test_public_classes_have_names_of_their_own():
    names = Counter(
        node.name
        for _, tree in trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_only_entry_points_choose_a_backend():
    """`select` and `choose` are called where a user enters, or where no backend was given."""
    entry = ("kernels", "registration", "followup", "cohort", "cli", "bench", "geometry/resample.py")
    entry += ("geometry/transform.py", "geometry/velocity.py", "measure")
    entry += ("ranks/work.py",)  # where another process of the same registration enters
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if not path.as_posix().startswith(entry)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in ("select", "choose")
    ]
    assert not wrong


def _called(node):
    """The name of a function that is called as `select(...)` or `kernels.select(...)`; not a method of a tensor."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr if getattr(node.func.value, "id", "") == "kernels" else ""
    return getattr(node.func, "id", "")

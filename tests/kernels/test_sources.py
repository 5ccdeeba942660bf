"""Sources of kernels: which ones a process has imported, and that kept machine code is never that of others."""

import os
import shutil
import subprocess
import sys

import pytest

from warpfactor.kernels.numba._compile import digest as sources


def test_the_digest_changes_with_any_source(tmp_path, monkeypatch):
    kernels = tmp_path / "kernels"
    shutil.copytree(sources.SOURCES, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "SOURCES", kernels)
    seen = {sources.digest()}
    for path in (kernels / "cpu" / "filters.py", kernels / "reference" / "lncc.py"):
        path.write_bytes(path.read_bytes() + b" ")
        seen.add(sources.digest())
    assert len(seen) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_source_that_cannot_be_read_is_no_error(tmp_path, monkeypatch):
    """Some editors keep links to nowhere beside an open file."""
    monkeypatch.setattr(sources, "SOURCES", tmp_path)
    before = sources.digest()
    (tmp_path / ".#lncc.py").symlink_to("nobody@nowhere")
    assert sources.digest() not in ("", before)


SAVED_WHILE_IMPORTED = """
import importlib.abc, sys
from pathlib import Path

path, when = Path(sys.argv[1]), sys.argv[2]

class Editor(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == when:
            path.write_text(path.read_text().replace("count = 1", "count = 2"))

sys.meta_path.insert(0, Editor())
import warpfactor.kernels.numba
from warpfactor.kernels.numba._compile import cache
import numba
kernel = cache.kept(numba.njit)(warpfactor.kernels.numba.edited.read)
print(kernel(), sum(kernel.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("when", ["warpfactor.kernels.numba.edited", "warpfactor.kernels.numba.statistics"])
def test_a_source_that_is_saved_while_it_is_imported_never_meets_another_ones_machine_code(tmp_path, when):
    """Just before it is read, or after: old code for a new caller, or new code under the old name, would be wrong."""
    package = tmp_path / "warpfactor"
    shutil.copytree(sources.SOURCES.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    edited, kernels = package / "kernels" / "cpu" / "edited.py", package / "kernels" / "cpu" / "__init__.py"
    edited.write_text("def read():\n    count = 1\n    return count\n")
    kernels.write_text(kernels.read_text().replace("from .sample ", "from . import edited\nfrom .sample "))
    (tmp_path / "run.py").write_text(SAVED_WHILE_IMPORTED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path)}
    found = []
    for moment in ("never", when, "never", "never"):
        command = [sys.executable, "-B", str(tmp_path / "run.py"), str(edited), moment]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found.append(done.stdout.split())
    while_saved = "2" if when.endswith("edited") else "1"  # what was read
    assert found == [["1", "0"], [while_saved, "0"], ["2", "0"], ["2", "1"]]

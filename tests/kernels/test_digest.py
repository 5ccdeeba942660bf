"""The digest of the kernels' sources: machine code of other sources is never loaded."""

import os
import shutil
import subprocess
import sys

import pytest

from warpfactor.kernels.numba._compile import digest


def test_the_digest_changes_with_any_source(tmp_path, monkeypatch):
    kernels = tmp_path / "kernels"
    shutil.copytree(digest.SOURCES, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(digest, "SOURCES", kernels)
    seen = {digest.source_digest()}
    for path in (kernels / "numba" / "lncc" / "sums.py", kernels / "reference" / "lncc.py"):
        path.write_bytes(path.read_bytes() + b" ")
        seen.add(digest.source_digest())
    assert len(seen) == 3
    other = kernels / "triton" / "lncc.py"
    other.write_bytes(other.read_bytes() + b" ")
    assert digest.source_digest() in seen


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_source_that_cannot_be_read_is_no_error(tmp_path, monkeypatch):
    """Some editors keep a dangling link beside an open file."""
    monkeypatch.setattr(digest, "SOURCES", tmp_path)
    before = digest.source_digest()
    (tmp_path / ".#lncc.py").symlink_to("nobody@nowhere")
    assert digest.source_digest() not in ("", before)


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
kernel = cache.cached(numba.njit)(warpfactor.kernels.numba.edited.read)
print(kernel(), sum(kernel.stats.cache_hits.values()))
"""


@pytest.mark.parametrize("when", ["warpfactor.kernels.numba.edited", "warpfactor.kernels.numba.statistics"])
def test_a_source_saved_during_the_import_never_meets_machine_code_of_another_version(tmp_path, when):
    """The file is saved just before it is imported, or after that."""
    package = tmp_path / "warpfactor"
    shutil.copytree(digest.SOURCES.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    edited, kernels = package / "kernels" / "numba" / "edited.py", package / "kernels" / "numba" / "__init__.py"
    edited.write_text("def read():\n    count = 1\n    return count\n")
    later = "from warpfactor.kernels.numba.sample import"
    kernels.write_text(kernels.read_text().replace(later, f"from warpfactor.kernels.numba import edited\n{later}"))
    (tmp_path / "run.py").write_text(SAVED_WHILE_IMPORTED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path)}
    found = []
    for moment in ("never", when, "never", "never"):
        command = [sys.executable, "-B", str(tmp_path / "run.py"), str(edited), moment]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found.append(done.stdout.split())
    imported = "2" if when.endswith("edited") else "1"
    assert found == [["1", "0"], [imported, "0"], ["2", "0"], ["2", "1"]]

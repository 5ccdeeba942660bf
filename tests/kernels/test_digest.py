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


# Each import is in a fork of one process that has imported the libraries beneath the package, but not the package.
SAVED_WHILE_IMPORTED = """
import importlib.abc, os, sys
from pathlib import Path
import numba, torch

path = Path(sys.argv[1])

class Editor(importlib.abc.MetaPathFinder):
    def __init__(self, moment, count):
        self.moment, self.count = moment, count

    def find_spec(self, name, *_):
        if name == self.moment:
            path.write_text(path.read_text().replace(f"count = {self.count}", f"count = {self.count + 1}"))

def imported():
    import warpfactor.kernels.numba
    from warpfactor.kernels.numba._compile import cache
    kernel = cache.cached(numba.njit)(warpfactor.kernels.numba.edited.read)
    print(kernel(), sum(kernel.stats.cache_hits.values()), flush=True)

assert "warpfactor" not in sys.modules
for number, moment in enumerate(sys.argv[2:]):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        continue
    sys.meta_path.insert(0, Editor(moment, 1 + number // 3))
    imported()
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_source_saved_during_the_import_never_meets_machine_code_of_another_version(tmp_path):
    """The file is saved just before it is imported, and later after that; each time what was compiled is stored."""
    package = tmp_path / "warpfactor"
    shutil.copytree(digest.SOURCES.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    edited, kernels = package / "kernels" / "numba" / "edited.py", package / "kernels" / "numba" / "__init__.py"
    edited.write_text("def read():\n    count = 1\n    return count\n")
    later = "from warpfactor.kernels.numba.sample import"
    kernels.write_text(kernels.read_text().replace(later, f"from warpfactor.kernels.numba import edited\n{later}"))
    (tmp_path / "run.py").write_text(SAVED_WHILE_IMPORTED)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path)}
    before, after = "warpfactor.kernels.numba.edited", "warpfactor.kernels.numba.statistics"
    moments = ("never", before, "never", "never", after, "never", "never")
    command = [sys.executable, "-B", str(tmp_path / "run.py"), str(edited), *moments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    saved_before = [["1", "0"], ["2", "0"], ["2", "0"]]
    saved_after = [["2", "1"], ["2", "0"], ["3", "0"], ["3", "1"]]
    assert [line.split() for line in done.stdout.splitlines()] == saved_before + saved_after

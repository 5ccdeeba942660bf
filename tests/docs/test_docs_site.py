"""The documentation site: it builds without a warning, and neither building nor reading it needs the network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from documents import ROOT

NOWHERE = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")


class Loads(HTMLParser):
    """Collects what a browser fetches by itself: sources, style sheets, icons; links to follow do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        fetched = given.get("src"), given.get("srcset"), given.get("href") if tag == "link" else None
        self.found += [address for address in fetched if address]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, **NOWHERE, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").glob("**/*.md")}
    assert {path.relative_to(site) for path in site.glob("**/*.html")} == pages | {Path("404.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.glob("**/*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found
        assert [address for address in loads.found if re.match(r"(https?:)?//", address)] == []
    for sheet in site.glob("**/*.css"):
        assert not re.search(r"@import|url\(\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_the_reference_has_what_the_docstrings_say(site: Path) -> None:
    text = (site / "reference" / "register.html").read_text(encoding="utf-8")
    assert "Find the transform that maps a moving image onto a fixed image." in text
    assert "4x4 matrix (LPS mm, fixed to moving)" in text
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "--keep-interrupted" in commands
    assert "Keep a Changelog" in (site / "changelog.html").read_text(encoding="utf-8")

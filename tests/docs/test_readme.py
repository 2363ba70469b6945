"""The README is for users first, leads to every page, and no page is a dead end."""

from __future__ import annotations

import re

import pytest

from divvy.version_info import version
from docs.hardware_page import reports
from lab.cluster.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
PAGES = sorted(path.name for path in (REPOSITORY / "docs").glob("*.md"))
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#]*)(?:#([^)]*))?\)")
FILES = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in PAGES)]


def test_says_first_what_divvy_replaces_and_what_has_not_been_tried() -> None:
    first = " ".join(README.split("\n## ")[0].split())
    for words in ("device plugin", "GPU Feature Discovery", "mig-manager", "with simulated GPUs"):
        assert words in first
    for report in reports():
        (node,) = report["environment"]["nodes"]
        assert f"{node['model'].removeprefix('NVIDIA ')} with driver" in first
        assert all(check["status"] != "failed" for check in report["checks"])
        skipped = {check["reason"] for check in report["checks"] if check["status"] == "skipped"}
        assert skipped == {"needs --mig"}
    assert "but for MIG" in first
    assert f"Status: {version()}" in first


def test_shows_users_the_installation_before_the_demo() -> None:
    places = [README.index(words) for words in ("pip install", "divvy init prod", "make demo")]
    assert places == sorted(places)
    assert "make setup\n" not in README
    assert "make test" not in README


def test_leads_to_every_page() -> None:
    both = README + CONTRIBUTING
    assert [name for name in PAGES if f"(docs/{name})" not in both] == []


def test_sends_contributors_to_files_that_exist() -> None:
    paths = re.findall(r"`((?:conformance|divvy|docs|lab|tests)/[\w/.]+)`", CONTRIBUTING)
    assert len(paths) > 20
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def anchors(text: str) -> set[str]:
    """Return what links can lead to in a page, as GitHub makes it of the headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title)) for title in titles]
    return {title.strip().lower().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", FILES)
def test_leads_to_files_and_headings_that_exist(page: str) -> None:
    path = REPOSITORY / page
    dead = []
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in LINK.findall(text):
        linked = path.parent / target if target else path
        if not linked.exists():
            dead.append(target)
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text()):
            dead.append(f"{target}#{anchor}")
    assert not dead

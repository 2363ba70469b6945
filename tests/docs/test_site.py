"""The site has every page in one place of its navigation, and links that are right there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from docs.site_pages import PAGES, on_post_page, site_links
from lab.cluster.paths import REPOSITORY

SITE = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())


def pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry if isinstance(entry, list) else entry.values():
            yield from pages(below)


def test_shows_every_page_once() -> None:
    expected = [path.name for path in (REPOSITORY / "docs").glob("*.md")] + [*PAGES.values()]
    of_contributors = [name.strip("/") for name in SITE["not_in_nav"].split()]
    assert sorted([*pages(SITE["nav"]), *of_contributors]) == sorted(expected)


def test_leads_contributors_to_the_pages_outside_of_the_navigation() -> None:
    linked = (REPOSITORY / "CONTRIBUTING.md").read_text()
    for name in SITE["not_in_nav"].split():
        assert f"](docs{name})" in linked, name


def test_has_a_tab_for_each_reader_and_refuses_dead_links() -> None:
    tabs = [title for entry in SITE["nav"] for title in entry]
    assert tabs == ["Start", "Use GPUs", "Run", "On call", "Reference"]
    assert SITE["strict"]
    assert set(SITE["validation"]["links"].values()) == {"warn"}


def test_gives_steps_headings_to_link_to() -> None:
    bold = re.compile(r"^\*\*\d", re.MULTILINE)
    pages_of_users = [name for name in pages(SITE["nav"]) if name not in PAGES.values()]
    texts = {name: (REPOSITORY / "docs" / name).read_text() for name in pages_of_users}
    assert [name for name, text in texts.items() if bold.search(text)] == []


def test_shows_no_program_beside_the_pages() -> None:
    assert {*SITE["exclude_docs"].split()} >= {"*.py", "__pycache__/"}


def test_loads_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    page = on_post_page('<head></head><pre class="mermaid"></pre>')
    assert page.startswith('<head><script src="mermaid.min.js"></script></head>')
    assert "script" not in on_post_page("<head></head>")


def test_leads_to_files_of_the_root_and_of_docs() -> None:
    assert site_links("[a](docs/lab.md#x) [b](CONTRIBUTING.md) ![c](docs/pictures/a.png)") == (
        "[a](lab.md#x) [b](contributing.md) ![c](pictures/a.png)"
    )
    assert site_links("[a](../CONTRIBUTING.md) [b](../README.md#start) [c](lab.md)") == (
        "[a](contributing.md) [b](index.md#start) [c](lab.md)"
    )

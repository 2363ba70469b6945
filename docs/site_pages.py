"""Hooks of MkDocs: pages of the site that are files of the repository's root, and links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (MkDocs alone has it)

    for name, page in PAGES.items():
        text = (_ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=site_links(text)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let the links of a page in docs/ lead to them."""
    return site_links(markdown)


def site_links(text: str) -> str:
    """Return a page whose links are right in the site, where all pages are in one folder."""
    for name, page in PAGES.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", text)
    return re.sub(r"\]\(docs/", "](", text).replace("[Apache-2.0](LICENSE)", "Apache-2.0")

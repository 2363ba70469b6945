"""Hooks of MkDocs: pages that are files of the repository's root, links to them, and diagrams.

Diagrams are blocks of Mermaid. Its script is a file of the site, from ``build/docs``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
MERMAID = "mermaid.min.js"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_config(config: Any) -> Any:
    """Let blocks of Mermaid be diagrams."""
    from pymdownx.superfences import fence_code_format  # noqa: PLC0415 (MkDocs alone has it)

    fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and the script."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (MkDocs alone has it)

    for name, page in PAGES.items():
        text = (_ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=site_links(text)))
    script = _ROOT / "build/docs" / MERMAID
    files.append(File.generated(config, MERMAID, abs_src_path=str(script)))
    return files


def on_post_page(output: str, **_: Any) -> str:
    """Load the script on pages with diagrams, for the theme not to load it from elsewhere."""
    script = f'<script src="{MERMAID}"></script></head>'
    return output.replace("</head>", script, 1) if 'class="mermaid"' in output else output


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let the links of a page in docs/ lead to them."""
    return site_links(markdown)


def site_links(text: str) -> str:
    """Return a page whose links are right in the site, where all pages are in one folder."""
    for name, page in PAGES.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", text)
    return re.sub(r"\]\(docs/", "](", text).replace("[Apache-2.0](LICENSE)", "Apache-2.0")

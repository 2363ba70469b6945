"""The tables of pulumi.md: what the embedded engine does, from its own declaration."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from divvy.engine import subset

PAGE = Path(__file__).parent / "pulumi.md"
_BEGIN = "<!-- subset: written by python -m docs.generate -->\n"
_END = "<!-- end of subset -->\n"


def pulumi_page() -> str:
    """Return the page with its tables."""
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}{_tables()}{_END}{tail}"


def _tables() -> str:
    rows = {
        "providers": (["`kubernetes`", "`pulumi-python` (dynamic resources)"], ["all others"]),
        "resource options": (_code(subset.OPTIONS), _code(subset.REFUSED_OPTIONS.values())),
        "options of a `kubernetes` provider": (_code(subset.PROVIDER_OPTIONS), ["all others"]),
        "annotations": (_code(subset.ANNOTATIONS), _code(subset.REFUSED_ANNOTATIONS)),
        "functions (invokes), methods": (["none"], ["all, with Helm charts and YAML files"]),
        "commands": (_code(subset.COMMANDS), ["all others of `pulumi`"]),
    }
    lines = ["| | the embedded engine has | it refuses |", "|---|---|---|"]
    lines += [
        f"| {name} | {', '.join(has)} | {', '.join(refuses)} |"
        for name, (has, refuses) in rows.items()
    ]
    lines += ["", "| kinds, in any version | API group | a step is done when |", "|---|---|---|"]
    groups: dict[tuple[str, str], list[str]] = {}
    for kind in subset.KINDS:
        groups.setdefault((kind.group, kind.ready), []).append(kind.name)
    lines += [
        f"| {', '.join(_code(names))} | `{group}` | {ready} |"
        for (group, ready), names in groups.items()
    ]
    return "\n".join(lines) + "\n"


def _code(names: Iterable[str]) -> list[str]:
    return [name if "`" in name else f"`{name}`" for name in names]

"""Who used how much over some time: a table, CSV, JSON and a page; docs/top.md describes them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from divvy.live.usage_over_time import NamespaceUse
from divvy.render.views.page import template

_COLUMNS = ("namespace", "resource", "device hours", "memory GiB hours")


def over_time_text(uses: Sequence[NamespaceUse]) -> Table:
    """Return a table: a row for each namespace and resource."""
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column.endswith("hours") else "left")
    for row in _rows(uses):
        table.add_row(*(Text("–" if cell is None else _cell_text(cell)) for cell in row))
    return table


def over_time_csv(uses: Sequence[NamespaceUse]) -> str:
    """Return CSV with a heading; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.replace(" ", "_") for column in _COLUMNS)
    writer.writerows(_rows(uses))
    return text.getvalue()


def over_time_json(uses: Sequence[NamespaceUse], cluster: str, since: str) -> str:
    """Return the same as JSON text."""
    namespaces = [
        {
            "namespace": use.namespace,
            "deviceHours": {name: round(hours, 3) for name, hours in use.device_hours.items()},
            "memoryGiBHours": _rounded(use.memory_gib_hours),
        }
        for use in uses
    ]
    document = {"cluster": cluster, "since": since, "namespaces": namespaces}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def over_time_page(uses: Sequence[NamespaceUse], cluster: str, since: str) -> str:
    """Return the same as a self-contained HTML page, with each namespace's part of the whole."""
    total = sum(sum(use.device_hours.values()) for use in uses)
    return template("usage_over_time.html.j2").render(
        uses=uses, cluster=cluster, since=since, total=total or 1
    )


def _rows(uses: Sequence[NamespaceUse]) -> Iterator[tuple[str | float | None, ...]]:
    """Yield a row for each resource; the memory, which is of all of them, is in the first."""
    for use in uses:
        memory = _rounded(use.memory_gib_hours)
        for number, (resource, hours) in enumerate(use.device_hours.items() or [("", 0.0)]):
            yield use.namespace, resource, round(hours, 3), memory if number == 0 else None


def _rounded(hours: float | None) -> float | None:
    return None if hours is None else round(hours, 3)


def _cell_text(cell: str | float) -> str:
    return f"{cell:,.1f}" if isinstance(cell, float) else cell

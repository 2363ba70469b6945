"""A preview as data (the official digest's shape), and the values of a step that change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from divvy.engine.property_path import changed_paths, value_at
from divvy.engine.state.resource import ResourceState, resource_to_json
from divvy.engine.values import masked
from divvy.engine.watcher import StepReport, Summary


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()
_TIMES = ("created", "modified")


def preview_digest(summary: Summary) -> dict[str, Any]:
    """Render steps, summary and failures as ``pulumi preview --json`` does."""
    return {
        "steps": [_step(step) for step in summary.steps],
        "diagnostics": [
            {"urn": urn, "message": text, "severity": "error"}
            for urn, text in summary.failures.items()
        ],
        "duration": int(summary.seconds * 1e9),
        "changeSummary": summary.counts(),
    }


def _step(step: StepReport) -> dict[str, Any]:
    rendered: dict[str, Any] = {"op": step.operation, "urn": step.urn}
    resource = step.new or step.old
    if resource is not None and resource.provider:
        rendered["provider"] = resource.provider
    if step.old is not None:
        rendered["oldState"] = _state(step.old)
    if step.new is not None:
        rendered["newState"] = _state(step.new)
    if step.changed:
        rendered["diffReasons"] = list(step.changed)
    if step.replace:
        rendered["replaceReasons"] = list(step.replace)
    rendered["detailedDiff"] = {
        path: {"kind": "update-replace" if path in step.replace else "update", "inputDiff": True}
        for path in step.changed
    } or None
    return rendered


def _state(resource: ResourceState) -> dict[str, Any]:
    rendered = {
        name: value for name, value in resource_to_json(resource).items() if name not in _TIMES
    }
    for name in ("inputs", "outputs"):
        if name in rendered:
            rendered[name] = masked(rendered[name])
    return rendered


def diff_lines(step: StepReport) -> Iterator[str]:
    """Yield "path: before → after" for every changed input of a step."""
    if step.old is None or step.new is None or step.operation == "same":
        return
    before, after = masked(dict(step.old.inputs)), masked(dict(step.new.inputs))
    for path in changed_paths(before, after):
        yield f"      {path}: {_at(before, path)} → {_at(after, path)}"


def _at(value: Any, path: str) -> str:
    text = repr(value_at(value, path, _ABSENT))
    return text if len(text) <= 100 else f"{text[:97]}..."

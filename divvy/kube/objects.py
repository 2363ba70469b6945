"""Reads what the API server answers: an object that cannot be read costs itself, not its list.

Anybody may write objects that nest up to 10,000 levels (parameters of a claim for some driver), or
have bytes that are no UTF-8, or numbers of 5,000 digits: at each Python's decoder gives up, and
loses the whole answer. A higher recursion limit moves the border only. What nests deeper than any
key that Divvy reads is left out instead, without recursion; what is not of the API is skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.kube.errors import TIMED_OUT, ApiError, KubeError, Unreachable
from divvy.kube.shapes import shape_problem

# The deepest that is read of any object, an affinity, has 12 levels.
MAX_LEVELS = 64
_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(rf"{_TEXT}|[\[\]{{}}]", re.DOTALL)
# Of a name that may be anything: it goes into logs and to terminals.
_MAX_NAME = 253
_MAX_DIGITS = 400
# Nobody reads them, and each can be as large as its object.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Of an annotation that is read: GPU types, or a word.
_MAX_ANNOTATION = 4096
# What a tenant fills at will in a pod, and no decision reads.
_OF_CONTAINER = (
    *("env", "envFrom", "args", "command", "volumeMounts", "volumeDevices", "securityContext"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
)
_OF_POD = ("hostAliases", "dnsConfig", "securityContext", "readinessGates", "imagePullSecrets")


@dataclass(frozen=True)
class Page:
    """A page of a list, and what leads to the next one.

    ``skipped`` names the objects that could not be read, and why: what they say is unknown. ``cut``
    names those that were read without what nests too deep.
    """

    items: list[dict[str, Any]]
    version: str
    more: str
    skipped: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Return what could not be read, in words."""
        return [f"{name}: {why}" for name, why in (*self.skipped.items(), *self.cut.items())]


def read_object(answer: bytes | str) -> Any:
    """Return the value of a JSON text as far as it can be read; raises ValueError."""
    text = _text(answer)
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return _read_in_part(text)


def read_page(answer: bytes | str, resource: str) -> Page:
    """Read a page of a list; raises ValueError, KeyError, TypeError or AttributeError."""
    text = _text(answer)
    skipped: dict[str, str] = {}
    cut: dict[str, str] = {}
    try:
        page = json.loads(text)
        listed = list(page["items"] or ())
    except (RecursionError, ValueError):
        frame, elements = _split(text)
        page = _read_in_part(frame)
        listed = [_element(element, cut) for element in elements]
    items = []
    for obj in listed:
        if problem := shape_problem(obj, resource):
            skipped[name_of(obj)] = problem
        else:
            items.append(obj)
    metadata = page["metadata"]
    version, more = metadata.get("resourceVersion"), metadata.get("continue")
    return Page(items, str(version or ""), str(more or ""), skipped, cut)


def version_of(obj: Any) -> str:
    """Return the version of an object, "" if it has none."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def name_of(obj: object) -> str:
    """Name an object for a person, as far as it has a name."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return "an object without a name"
    words = (str(metadata[key])[:_MAX_NAME] for key in ("namespace", "name") if metadata.get(key))
    return "/".join(words) or "an object without a name"


def may_be_too_large(error: KubeError) -> bool:
    """Return whether fewer objects may be answered where so many were not.

    The API server gives a page of large objects up after a minute, with a time-out of its own.
    """
    if isinstance(error, Unreachable):
        return error.too_long or error.waited
    return isinstance(error, ApiError) and error.code == TIMED_OUT


def trimmed(obj: dict[str, Any], resource: str) -> dict[str, Any]:
    """Return an object of a list without what no decision reads, and what may be large."""
    if resource == "secrets":  # which are written back
        return obj
    metadata = obj["metadata"]
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations") or {}
    if resource == "nodes":  # which tenants do not write
        annotations.pop(_LAST_APPLIED, None)
    else:
        for key in [key for key, text in annotations.items() if len(text) > _MAX_ANNOTATION]:
            del annotations[key]
    if resource == "pods" and (spec := obj.get("spec")):
        for key in _OF_POD:
            spec.pop(key, None)
        for key in ("initContainers", "containers", "ephemeralContainers"):
            for container in spec.get(key) or ():
                for large in _OF_CONTAINER if isinstance(container, dict) else ():
                    container.pop(large, None)
        if isinstance(volumes := spec.get("volumes"), list):
            # Only which sort of volume it is decides about anything.
            spec["volumes"] = [dict.fromkeys(volume) for volume in volumes if volume]
    return obj


def resource_of(path: str) -> str:
    """Return the plural name of what a path lists."""
    return path.partition("?")[0].rpartition("/")[2]


def _text(answer: bytes | str) -> str:
    return answer if isinstance(answer, str) else str(answer, "utf-8", "replace")


def _element(text: str, cut: dict[str, str]) -> Any:
    """Return an object of a list as far as it can be read."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        obj = _read_in_part(text)
        cut[name_of(obj)] = "a part of it that nests too deep, or a number too long, is not read"
        return obj


def _read_in_part(text: str) -> Any:
    """Return a JSON value with None for what nests too deep, and for numbers without end."""
    return json.loads(_without_depths(text, MAX_LEVELS), parse_int=_integer)


def _integer(digits: str) -> int | None:
    # Python reads no more than 4,300 digits; the API server has no number of more than 20.
    return int(digits) if len(digits) <= _MAX_DIGITS else None


def _without_depths(text: str, levels: int) -> str:
    """Return a JSON text with null for what nests deeper than so many levels."""
    pieces: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        if character in "[{":
            depth += 1
            if depth == levels + 1:
                pieces += (text[start : token.start()], "null")
        elif character in "]}":
            if depth == levels + 1:
                start = token.end()
            depth -= 1
    return "".join((*pieces, text[start:]))


def _split(text: str) -> tuple[str, list[str]]:
    """Return a list without its objects, and the text of each object.

    Raises ValueError if it is not a list that is closed.
    """
    elements: list[str] = []
    frame: list[str] = []
    depth = start = begin = 0
    in_items = False
    for token in _TOKEN.finditer(text):
        character = text[token.start()]
        if character in "[{":
            depth += 1
            # Of the fields of a list only its items are an array.
            in_items = character == "[" if depth == 2 else in_items
            if depth == 3 and in_items:
                begin = token.start()
                frame.append(text[start:begin].rstrip().rstrip(","))
        elif character in "]}":
            if depth == 3 and in_items:
                start = token.end()
                elements.append(text[begin:start])
            depth -= 1
    if depth:
        raise ValueError("the list is not closed")
    return "".join((*frame, text[start:])), elements

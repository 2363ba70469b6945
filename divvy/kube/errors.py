"""Errors of requests to a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FORBIDDEN, NOT_FOUND, CONFLICT, GONE, INVALID = 403, 404, 409, 410, 422
TOO_MANY_REQUESTS, UNAVAILABLE, TIMED_OUT = 429, 503, 504
MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""What reading an answer that is not the API server's fails with."""

# Of an answer in an error; the API server's own, which are no Status, are a few words.
_MOST_CHARACTERS = 500


class KubeError(Exception):
    """A cluster did not do what it was asked for; the text is one clear sentence."""


class KubeconfigError(KubeError):
    """A kubeconfig names no cluster or user that can be used."""


class Unreachable(KubeError):
    """The API server did not answer, or not as one does.

    ``waited``: nothing came in time, as from a busy server. ``too_long``: more came than is read.
    """

    def __init__(self, text: str, *, waited: bool = False, too_long: bool = False) -> None:
        super().__init__(text)
        self.waited = waited
        self.too_long = too_long


class ApiError(KubeError):
    """The API server refused, with this HTTP status ``code``; ``body`` is its Status, or {}."""

    def __init__(self, code: int, text: str, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.body = body or {}


def refusal(code: int, answer: str) -> ApiError:
    """Read an API server's refusal."""
    try:
        body = json.loads(answer)
    except (RecursionError, ValueError):
        body = {}
    body = body if isinstance(body, dict) else {}
    return ApiError(code, str(body.get("message") or _plain(code, answer)), body)


def _plain(code: int, answer: str) -> str:
    """Return an answer that is not a Status in one sentence: a proxy may answer with a page."""
    words = " ".join(answer.split())
    if words.startswith("<"):
        return f"HTTP {code} with a page of HTML, as from a proxy"
    return words[:_MOST_CHARACTERS] or f"HTTP {code}"

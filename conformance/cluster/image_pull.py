"""Images are pulled once per node before anything is timed: a slow registry is no GPU's fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from conformance.skips import not_made
from divvy.model.conditions import refused_place

_PATIENCE = 600.0
# How long a registry may go on refusing: the kubelet tries again after 10 s, then after 20 s.
_REFUSED = 45.0
_FAILED = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
_HOPELESS = ("InvalidImageName",)
_PERIOD = 0.3
# Of another architecture: how a runtime says it of a program, and of an image of several.
_FORMAT, _NO_PLATFORM = "exec format error", "no match for platform"
# What ``wait`` returns of such an image.
FOREIGN = "it is for another architecture"


class ImagePulls:
    """What became of each image on each node; the first that needs one waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Future[str]] = {}

    def require(self, node: str, image: str, pull: Callable[[], str]) -> None:
        """Go on when the node has the image; not made where it cannot get or run it."""
        with self._lock:
            first = (node, image) not in self._known
            pulled = self._known.setdefault((node, image), Future())
        if first:
            try:
                pulled.set_result(pull())
            except BaseException as problem:
                with self._lock:
                    del self._known[node, image]
                pulled.set_exception(problem)
                raise
        why = pulled.result()
        if why:
            not_made(f"{node} cannot run the image: {why}")

    def wait(self, pod: Callable[[], Mapping[str, Any]], log: Callable[[], str]) -> str:
        """Wait until a pod's image is there; return what prevents it, "" if nothing."""
        deadline, refused = time.monotonic() + _PATIENCE, None
        while time.monotonic() < deadline:
            state, why = pull_state(pod())
            if state == "pulled":
                return FOREIGN if _FORMAT in f"{why} {log()}" else ""
            if state == "foreign":
                return FOREIGN
            if state == "hopeless":
                return why
            if state == "refused":
                refused = refused or time.monotonic()
                if time.monotonic() - refused > _REFUSED:
                    return why
            time.sleep(_PERIOD)
        return f"it was not pulled within {_PATIENCE:.0f} s"


def pull_state(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return how far a pod's image is (pulling, pulled, refused, foreign, hopeless), and why."""
    status = pod.get("status") or {}
    state = ((status.get("containerStatuses") or [{}])[0].get("state")) or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = str(waiting.get("reason") or "")
    message = f"{reason}: {waiting.get('message') or ''}".rstrip(": ")
    if _NO_PLATFORM in message:
        return "foreign", message
    if reason in _FAILED:
        return "refused", message
    if reason in _HOPELESS:
        return "hopeless", message
    if ended or state.get("running"):
        return "pulled", str(ended.get("message") or "")
    if no_place := refused_place(pod):
        return "refused", str(no_place.get("message") or "it is not scheduled")
    if status.get("phase") == "Failed":
        return "hopeless", f"{status.get('reason')}: {status.get('message') or ''}".rstrip(": ")
    return "pulling", ""

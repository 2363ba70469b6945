"""The pods of one namespace, kept up to date by a watch: looking at one costs no request."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from conformance.cluster.api import Api
from divvy.kube.errors import NOT_FOUND, ApiError, KubeError
from divvy.kube.kind import POD

_WATCH_SECONDS = 60
_PAUSE = 1.0


class PodWatch:
    """The latest state of every pod of a namespace; also the last one of pods that are gone."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._pods: dict[str, Any] = {}
        self._gone: dict[str, Any] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()
        threading.Thread(target=self._follow, daemon=True, name=f"watch {namespace}").start()

    def pod(self, name: str) -> Any | None:
        """Return a pod as it is known, None if it is gone or was never there."""
        with self._changed:
            return self._pods.get(name)

    def last(self, name: str) -> Mapping[str, Any]:
        """Return a pod as it was when it was last seen, {} for a pod that never was."""
        with self._changed:
            return self._pods.get(name) or self._gone.get(name) or {}

    def add(self, name: str, pod: Any) -> None:
        """Take in a pod that was just made, before the watch tells of it."""
        with self._changed:
            self._pods.setdefault(name, pod)

    def refresh(self, name: str) -> None:
        """Read one pod from the API: a watch may be late."""
        try:
            pod = self._api.get(POD, name, self._namespace)
        except KubeError as problem:
            if isinstance(problem, ApiError) and problem.code == NOT_FOUND:
                self._take("DELETED", name, self.last(name))
            return
        self._take("MODIFIED", name, pod)

    def wait(self, seconds: float) -> None:
        """Wait until any pod changes, at most some seconds."""
        with self._changed:
            self._changed.wait(seconds)

    def end(self) -> None:
        """Stop following."""
        self._over.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Return whether nothing is known any more of what becomes of the pods."""
        return self._over.is_set()

    def _follow(self) -> None:
        while not self._over.is_set():
            known = set(self._pods)
            began = time.monotonic()
            try:
                listed, version = self._api.find_at(POD, namespace=self._namespace)
                self._replace(known, {pod["metadata"]["name"]: pod for pod in listed})
                for kind, pod in self._api.watch(POD, self._namespace, version, _WATCH_SECONDS):
                    self._take(kind, pod["metadata"]["name"], pod)
                    if self._over.is_set():
                        return
            except KubeError:
                pass
            # A server or proxy that ends each watch at once is not asked more often either.
            self._over.wait(began + _PAUSE - time.monotonic())

    def _replace(self, known: set[str], listed: Mapping[str, Any]) -> None:
        """Take in a list; a pod that was made since is not on it."""
        with self._changed:
            for name in known - set(listed):
                self._gone[name] = self._pods.pop(name, None)
            self._pods.update(listed)
            self._changed.notify_all()

    def _take(self, kind: str, name: str, pod: Any) -> None:
        with self._changed:
            if kind == "DELETED":
                self._pods.pop(name, None)
                self._gone[name] = pod
            else:
                self._pods[name] = pod
            self._changed.notify_all()

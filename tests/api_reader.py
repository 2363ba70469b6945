"""Reads objects of a real API server within the process, as ``kubectl get`` would.

A `kubectl` costs 0.08 s of processor, and a test that waits looks ten times a second.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from divvy.kube.client import Client
from divvy.kube.errors import Unreachable
from divvy.kube.kubeconfig import cluster_config

_SELECTORS = {"--selector": "labelSelector", "-l": "labelSelector"}
_NAMESPACE = ("-n", "--namespace")
_NOT_FOUND = 404


class ApiReader:
    """One connection to the API server of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def get(self, *arguments: str) -> Any:
        """Return an object or a list; the arguments are those of ``kubectl get``.

        Fails if there is no such object or kind.
        """
        read = self.try_get(*arguments)
        assert read is not None, f"kubectl get {' '.join(arguments)}: not found"
        return read

    def try_get(self, *arguments: str) -> Any:
        """Return an object or a list, or None."""
        names = [word for word in arguments if not word.startswith("-")]
        flags = dict(word.partition("=")[::2] for word in arguments if word.startswith("-"))
        namespace = next((flags.pop(flag) for flag in _NAMESPACE if flag in flags), "default")
        if flags.pop("--all-namespaces", None) is not None:
            namespace = ""
        query = {_SELECTORS[flag]: value for flag, value in flags.items()}
        kinds, _, name = names[0].partition("/")
        if len(names) > 1:
            (name,) = names[1:]
        lists = [self._read(kind, name, namespace, query) for kind in kinds.split(",")]
        if len(lists) == 1:
            return lists[0]
        return {"items": [item for listed in lists for item in listed["items"]]}

    def _read(self, kind: str, name: str, namespace: str, query: dict[str, str]) -> Any:
        base, plural, singular, namespaced = self._resources[kind]
        place = f"/namespaces/{namespace}" if namespaced and namespace else ""
        path = f"{base}{place}/{plural}" + (f"/{name}" if name else "")
        try:
            answer = self._client.send("GET", path, query=query)
        except Unreachable:  # kept open since before the server started again
            answer = self._client.send("GET", path, query=query)
        if answer.code == _NOT_FOUND:
            return None
        assert answer.is_success, f"{path}: {answer.text}"
        read = json.loads(answer.text)
        for item in read.get("items", ()):
            # As kubectl shows it; the items of a list come without.
            item.setdefault("kind", singular)
        return read

    @cached_property
    def _resources(self) -> dict[str, tuple[str, str, str, bool]]:
        """Return path, plural, kind and whether it is namespaced, by plural and singular names."""
        groups = self._client.get("/apis")["groups"]
        bases = [
            "/api/v1",
            *(f"/apis/{api_group['preferredVersion']['groupVersion']}" for api_group in groups),
        ]
        resources: dict[str, tuple[str, str, str, bool]] = {}
        for base in bases:
            for resource in self._client.get(base).get("resources", ()):
                if "/" not in resource["name"]:
                    entry = (base, resource["name"], resource["kind"], resource["namespaced"])
                    group = base.split("/")[2]
                    short = (*resource.get("shortNames", ()), f"{resource['name']}.{group}")
                    for called in (
                        resource["name"],
                        resource["singularName"],
                        resource["kind"].lower(),
                        *short,
                    ):
                        resources.setdefault(called, entry)
        return resources

    @cached_property
    def _client(self) -> Client:
        return Client(cluster_config(str(self._kubeconfig), None), seconds=60)

    def close(self) -> None:
        """Close the connection."""
        if "_client" in self.__dict__:
            self._client.close()

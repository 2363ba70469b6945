"""A provider's connection, made once, and only to the cluster that is recorded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from divvy.engine.kubernetes.api import Api, ApiProblem
from divvy.engine.provider import other_cluster, same_cluster
from divvy.kube.kind import Kind


class Connection:
    """Connects when first needed.

    ``configuration`` are the provider resource's inputs; ``recorded`` is the cluster that it
    had before, empty if it had none.
    """

    def __init__(self, configuration: Mapping[str, Any], recorded: Mapping[str, str]) -> None:
        self._configuration = configuration
        self._recorded = recorded
        self._api: Api | None = None
        self._connecting = threading.Lock()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._api is not None:
            self._api.close()

    def cluster(self) -> Mapping[str, str]:
        """Return the cluster's uid ("" if this user may not see it) and its server's URL."""
        with self._connecting:
            api = self._connected()
        return {"uid": api.cluster_uid(), "server": api.server}

    def identity(self) -> str:
        """Return "USER on SERVER"."""
        with self._connecting:
            api = self._connected()
        return f"{api.user() or 'an unnamed user'} on {api.server}"

    @property
    def api(self) -> Api:
        """Return the connection; raises StepFailed if it leads to another cluster."""
        with self._connecting:
            api = self._connected()
            if self._recorded:
                reached = {"uid": api.cluster_uid(), "server": api.server}
                if not same_cluster(self._recorded, reached):
                    raise other_cluster(
                        "the kubeconfig", api.server, str(self._recorded.get("server"))
                    )
                self._recorded = {}
            return api

    @property
    def default_namespace(self) -> str:
        """Return the namespace of objects without one."""
        return str(self._configuration.get("namespace") or self.api.default_namespace)

    def location(self, obj: Mapping[str, Any]) -> tuple[Kind, str]:
        """Return kind and namespace of an object; raises ApiProblem (404) for an unknown kind."""
        kind = self.api.kind(str(obj["apiVersion"]), str(obj["kind"]))
        return kind, self._namespace(obj, kind)

    def known_location(self, obj: Mapping[str, Any]) -> tuple[Kind, str] | None:
        """Return kind and namespace of a recorded object, None if its kind is gone.

        A cluster that was upgraded may serve it in another version than the recorded one.
        """
        kind = self.api.served_kind(str(obj["apiVersion"]), str(obj["kind"]))
        return None if kind is None else (kind, self._namespace(obj, kind))

    def namespaced(self, obj: Mapping[str, Any]) -> bool:
        """Tell whether this kind is namespaced; one that the cluster does not have is not."""
        try:
            return self.api.kind(str(obj["apiVersion"]), str(obj["kind"])).namespaced
        except ApiProblem as problem:
            if problem.status == 404:
                return False
            raise

    def _namespace(self, obj: Mapping[str, Any], kind: Kind) -> str:
        """Return an object's namespace, "" for a kind without."""
        if not kind.namespaced:
            return ""
        return str(obj["metadata"].get("namespace") or self.default_namespace)

    def _connected(self) -> Api:
        if self._api is None:
            kubeconfig = self._configuration.get("kubeconfig")
            self._api = Api(
                str(kubeconfig) if kubeconfig else None, self._configuration.get("context")
            )
        return self._api

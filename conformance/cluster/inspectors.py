"""Pods of the suite's own that look into nodes where no agent of Divvy's runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from conformance.cluster.pods import PodNamespace
from conformance.skips import not_made
from divvy.image.build import BuildFailed, build_and_push
from divvy.model import Cluster
from divvy.model.api_names import DRIVER_ROOT, DRIVER_ROOT_VARIABLE

_COMMAND = ("sleep", "infinity")
_STARTED = 300
_FOLDERS = {
    path: path
    for path in (
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/var/run/cdi",
    )
}


class Inspectors:
    """One privileged pod on each node that is asked about, with the image of Divvy's agent.

    The image has the driver's bindings and the kubelet's interfaces, and the pod sees the folders
    that an agent sees: what is asked of an agent can be asked there.
    """

    def __init__(self, pods: Callable[[], PodNamespace], cluster: Cluster) -> None:
        self._pods = pods
        self._cluster = cluster
        self._lock = threading.Lock()
        self._image: str | None = None
        self._names: dict[str, str] = {}

    def on(self, node: str) -> tuple[str, str]:
        """Return namespace and name of the pod on a node; skips the check if none can run."""
        with self._lock:
            pods = self._pods()
            name = self._names.get(node)
            # As every pod of the suite it ends by itself, and the run may take longer.
            if name is None or pods.phase(name) != "Running":
                name = self._names[node] = self._start(pods, node)
            return pods.name, name

    def _start(self, pods: PodNamespace, node: str) -> str:
        root = self._cluster.driver.root
        name = pods.start(
            node,
            _COMMAND,
            image=self._agents_image(),
            env={DRIVER_ROOT_VARIABLE: root},
            host_folders={DRIVER_ROOT: root, **_FOLDERS},
        )
        if not pods.until(lambda: pods.phase(name) in ("Running", "Failed"), _STARTED):
            not_made(f"no pod that looks into {node} started within {_STARTED} s")
        return name

    def _agents_image(self) -> str:
        if self._image is None:
            image = self._cluster.plugin.image
            if image is not None and image.reference is not None:
                self._image = image.reference
            elif image is None or image.registry is None or image.base is None:
                not_made("plugin.image says neither which image looks into nodes nor where to push")
            else:
                try:
                    self._image = build_and_push(
                        image.registry,
                        image.base,
                        insecure=image.insecure,
                        platforms=image.platforms,
                    )
                except BuildFailed as problem:
                    not_made(f"the image that looks into nodes cannot be built: {problem}")
        return self._image

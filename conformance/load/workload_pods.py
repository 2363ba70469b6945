"""Pods that hold a device of each kind and compute on it without end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from conformance.cluster.pods import PodNamespace
from conformance.observe.identities import visible_gpus
from conformance.promise import DevicePromise
from conformance.skips import not_applicable

_MARK, BROKEN = "computed", "cuda-vector-add failed"
# Lists its GPUs, then computes without end, and says so each time.
COMPUTING = (
    "/bin/sh",
    "-c",
    f"nvidia-smi -L; while cuda-vector-add --size 1000 >/dev/null; do echo {_MARK}; sleep 0.5; "
    f"done; echo '{BROKEN}'; exit 1",
)
_PATIENCE = 60
# A pod that is ended for what has happened is ended within seconds.
_MORE_ROUNDS = 6
_PATIENCE_FOR_MORE = 20


class WorkloadPods:
    """The pods of one node, and what they looked like before anything happened."""

    def __init__(self, pods: PodNamespace, promises: Sequence[DevicePromise]) -> None:
        self.pods = pods
        self.promises = promises
        self._by_resource: dict[str, str] = {}
        self._containers: dict[str, tuple[str, int]] = {}
        self.disturbed: tuple[str, ...] = ()

    @property
    def _names(self) -> list[str]:
        return list(self._by_resource.values())

    def start(self) -> None:
        """Start the pods."""
        for promise in self.promises:
            name = self.pods.start(promise.node.name, COMPUTING, promise.resource)
            self._by_resource[promise.resource] = name

    def settle(self) -> None:
        """Wait until every pod has computed; it is held to that from now on."""
        for name in self._names:
            ready = self.pods.until(lambda: self._settled(name), _PATIENCE)  # noqa: B023
            assert ready, f"a pod that computes on a device: {self.pods.wait(name, 0)}"
            self._containers[name] = self.pods.container(name)

    def _settled(self, name: str) -> bool:
        """Return whether a pod computes and its status has caught up with that."""
        running = self.pods.phase(name) == "Running" and self.pods.container(name)[0] != ""
        return running and self._rounds(name) > 0

    @property
    def expected(self) -> str:
        """Return what ``undisturbed`` says when all is well."""
        return f"{len(self.promises)} of {len(self.promises)} pods compute on"

    def undisturbed(self) -> str:
        """Return how many pods run in the container they began in, and go on computing."""
        rounds = {name: self._rounds(name) for name in self._names}
        went_on: set[str] = set()

        def settled() -> bool:
            """Look once more; what was seen to go on stays seen, should a log be away later."""
            for name in self._names:
                if self._rounds(name) >= rounds[name] + _MORE_ROUNDS:
                    went_on.add(name)
            return all(name in went_on or not self._runs(name) for name in self._names)

        self.pods.until(settled, _PATIENCE_FOR_MORE)
        well = [name for name in self._names if name in went_on and self._runs(name)]
        self.disturbed = tuple(self._describe(name) for name in self._names if name not in well)
        return f"{len(well)} of {len(self.promises)} pods compute on"

    def _describe(self, name: str) -> str:
        last = self.pods.log(name).strip().splitlines()[-5:]
        return f"pod {name} is {self.pods.phase(name)}; its last output: {' / '.join(last)}"

    def gpu(self) -> str:
        """Return the UUID of the GPU on which the first pod's device is."""
        gpus = visible_gpus(self.pods.log(self._names[0]))
        assert gpus, "the pod's nvidia-smi names no GPU"
        return gpus[0]

    def end(self, *resources: str) -> None:
        """Remove the pods that hold these resources."""
        self.pods.remove(*(self._by_resource[resource] for resource in resources))

    def end_all(self) -> None:
        """Remove the pods."""
        self.end(*self._by_resource)

    def _runs(self, name: str) -> bool:
        return (
            self.pods.phase(name) == "Running"
            and self.pods.container(name) == self._containers[name]
        )

    def _rounds(self, name: str) -> int:
        return rounds_in(self.pods.log(name))


def rounds_in(log: str) -> int:
    """Return how often a pod has computed so far."""
    return len(re.findall(rf"^{_MARK}$", log, re.MULTILINE))


def kinds_to_hold(promises: Sequence[DevicePromise]) -> Sequence[DevicePromise]:
    """Return the kinds of devices that pods can hold on a node; skip where there are none.

    Without a pod nothing is shown of what becomes of pods.
    """
    if not promises:
        not_applicable("pods claim all GPUs of the node: none of them holds a device of a plugin")
    return promises


@contextlib.contextmanager
def workload_pods(pods: PodNamespace, promises: Sequence[DevicePromise]) -> Iterator[WorkloadPods]:
    """Give pods on devices, and remove them."""
    workloads = WorkloadPods(pods, promises)
    try:
        workloads.start()
        workloads.settle()
        yield workloads
    finally:
        workloads.end_all()

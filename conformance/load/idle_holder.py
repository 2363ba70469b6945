"""A pod that holds a MIG device without using it, and looks whether it is still there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from conformance.cluster.pods import PodNamespace
from conformance.promise import DevicePromise

_MARK = "the device is there"
_PERIOD = 2
_HOLD = f"""
own=$(nvidia-smi -L | sed -n 's/.*UUID: \\(MIG-[^)]*\\)).*/\\1/p')
[ -n "$own" ] || {{ echo "nvidia-smi lists no MIG device"; exit 1; }}
echo "holds $own"
while nvidia-smi -L | grep -qF "$own"; do echo "{_MARK}"; sleep {_PERIOD}; done
echo "$own is gone"; exit 1
"""
_PATIENCE = 60
# The agent counts its own answer to the kubelet for 10 s: the holder alone keeps it off for longer.
_MORE_ROUNDS = 6
_PATIENCE_FOR_MORE = 40


class IdleHolder:
    """The pod; ``init`` says whether an init container of it holds the device."""

    def __init__(self, pods: PodNamespace, promise: DevicePromise, *, init: bool) -> None:
        self._pods = pods
        command = ["/bin/sh", "-c", _HOLD]
        self._name = pods.start(promise.node.name, command, promise.resource, init=init)

    def settle(self) -> None:
        """Wait until it holds its device."""
        ready = self._pods.until(lambda: _MARK in self._log(), _PATIENCE)
        assert ready, f"a pod that holds a device: {self._pods.wait(self._name, 0)}"

    def look(self) -> str:
        """Describe whether it still has its first device, after some more looks."""
        began = self._log().count(_MARK)
        self._pods.until(
            lambda: self._gone() or self._log().count(_MARK) >= began + _MORE_ROUNDS,
            _PATIENCE_FOR_MORE,
        )
        has_device = not self._gone() and self._log().count(_MARK) >= began + _MORE_ROUNDS
        return "the holder has its device" if has_device else "the holder has lost its device"

    @property
    def last_words(self) -> str:
        """Return the last line of its log."""
        return (self._log().strip().splitlines() or ["it said nothing"])[-1]

    def end(self) -> None:
        """Remove the pod."""
        self._pods.remove(self._name)

    def _gone(self) -> bool:
        return re.search(r" is gone$", self._log(), re.MULTILINE) is not None

    def _log(self) -> str:
        return self._pods.log(self._name)


@contextlib.contextmanager
def idle_holder(pods: PodNamespace, promise: DevicePromise, *, init: bool) -> Iterator[IdleHolder]:
    """Give a pod that holds a device, and remove it."""
    holder = IdleHolder(pods, promise, init=init)
    try:
        holder.settle()
        yield holder
    finally:
        holder.end()

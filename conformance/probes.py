"""Pods that look around: one per resource and node answers several checks, all at once.

A pod takes a second or more to start and to go, its work takes a fraction of one. So
every look at a device happens in one pod, and all these pods run at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from conformance.pods import Outcome, Workplace
from conformance.promise import DevicePromise

Case = TypeVar("Case")
Result = TypeVar("Result")
_MARK = "@@ "

# Prints what a container can see of GPUs: device files it can open, CUDA's and NVML's view.
LOOK = """
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/nvidia-cap*; do
  [ -e "$node" ] || continue
  if dd if="$node" of=/dev/null count=0 2>&1 | grep -qv "Operation not permitted"; then
    echo "node $node"
  fi
done
gpu-burn -l 2>/dev/null | sed 's/^/cuda /'
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | sed 's/^/smi /'
env | grep '^NVIDIA_VISIBLE_DEVICES' | sed 's/^/env /'
true
"""
_PARTS = {
    "look": LOOK,
    "memory": "mem-hog --mib 1",
    "vector-add": "cuda-vector-add",
    "nvidia-smi": "nvidia-smi",
}
SCRIPT = "\n".join(
    f"echo '{_MARK}{name}'; ({script}) 2>&1; echo '{_MARK}'$?" for name, script in _PARTS.items()
)


@dataclass(frozen=True)
class Part:
    """One command in a probe: its exit code (None: it never ran to its end) and output."""

    code: int | None
    log: str
    pod: Outcome

    def __str__(self) -> str:
        if self.code is None:
            return str(self.pod)
        last = self.log.strip().splitlines()[-1:] or [""]
        return f"exit code {self.code}, `{last[0]}`"


def part(pod: Outcome, name: str) -> Part:
    """Return what one command of a probe said."""
    pattern = rf"^{_MARK}{name}\n(.*?)^{_MARK}(\d+)$"
    found = re.search(pattern, pod.log, re.MULTILINE | re.DOTALL)
    if found is None:
        return Part(None, pod.log, pod)
    return Part(int(found.group(2)), found.group(1), pod)


def look_around(pods: Workplace, promise: DevicePromise) -> Outcome:
    """Run every look at a device in one pod that holds one."""
    return pods.run(promise.node.name, ["/bin/sh", "-c", SCRIPT], promise.resource, 120)


class AtOnce(Generic[Case, Result]):
    """Does the same for many cases at the same time; all are done when the first is answered."""

    def __init__(self, cases: Iterable[Case], work: Callable[[Case], Result], most: int) -> None:
        self._cases = tuple(cases)
        self._work = work
        self._most = most
        self._done: dict[str, Future[Result]] = {}

    def __getitem__(self, case: Case) -> Result:
        """Return what came of a case; a failure of its work is raised here."""
        if not self._done:
            with ThreadPoolExecutor(self._most) as threads:
                self._done = {str(one): threads.submit(self._work, one) for one in self._cases}
        return self._done[str(case)].result()

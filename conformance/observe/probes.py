"""Pods that look around: one per resource and node answers several checks, all at once.

A pod takes a second or more to start and to go, its work takes a fraction of one. So
every look at a device happens in one pod, and all these pods run at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.promise import DevicePromise

Case = TypeVar("Case")
Result = TypeVar("Result")
_MARK = "@@ "

# Prints what a container can see of GPUs: device files it can open, CUDA's and NVML's view, and
# whether the driver is the simulated one, by a mark that only its library has.
LOOK = """
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/nvidia-cap*; do
  [ -e "$node" ] || continue
  if dd if="$node" of=/dev/null count=0 2>&1 | grep -qv "Operation not permitted"; then
    echo "node $node"
  fi
done
gpu-burn -l 2>/dev/null | sed 's/^/cuda /'
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | sed 's/^/smi /'
for folder in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /usr/lib/*-linux-gnu/nvidia/current \
    /usr/local/nvidia/lib64; do
  [ -e "$folder/libcuda.so.1" ] || continue
  if grep -qs divvySimulated "$folder/libcuda.so.1"; then echo "driver simulated"
  else echo "driver real"; fi
  break
done
true
"""
PARTS = {
    "look": LOOK,
    "memory": "mem-hog --mib 1",
    "vector-add": "cuda-vector-add",
    "nvidia-smi": "nvidia-smi",
}


def script(parts: Mapping[str, str]) -> str:
    """Return a shell script that runs commands and marks where each begins and how it ends."""
    return "\n".join(
        f"echo '{_MARK}{name}'; ({command}) 2>&1; echo '{_MARK}'$?"
        for name, command in parts.items()
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


def adds(probe: Part) -> bool:
    """Return whether cuda-vector-add has added vectors without an error."""
    return probe.code == 0 and "Test PASSED" in probe.log


def burns(probe: Part) -> bool:
    """Return whether gpu-burn found no error: it ends with 0 whatever it finds."""
    spoilt = re.search(r"DIED|FAULTY|WARNING", probe.log)
    return probe.code == 0 and "GPU 0: OK" in probe.log and spoilt is None


def part(pod: Outcome, name: str) -> Part:
    """Return what one command of a probe said."""
    pattern = rf"^{_MARK}{name}\n(.*?)^{_MARK}(\d+)$"
    match = re.search(pattern, pod.log, re.MULTILINE | re.DOTALL)
    if match is None:
        return Part(None, pod.log, pod)
    return Part(int(match.group(2)), match.group(1), pod)


def look_around(pods: PodNamespace, promise: DevicePromise) -> Outcome:
    """Run every look at a device in one pod that holds one."""
    return pods.run(promise.node.name, ["/bin/sh", "-c", script(PARTS)], promise.resource, 120)


def smi_total(log: str, *, is_mig: bool) -> int | None:
    """Return the total memory, in MiB, that nvidia-smi shows first; None: it shows none.

    With ``is_mig`` of a MIG device: above those stands their card, which has more.
    """
    # Below a MIG device's memory stands its window for the processor.
    _, _, slices = log.partition("MIG devices:")
    match = re.search(r"\d+MiB\s*/\s*(\d+)MiB", slices if is_mig else log)
    return None if match is None else int(match[1])


def device_mib(log: str) -> int | None:
    """Return the total memory, in MiB, that mem-hog found; None: it found none."""
    match = re.search(r"device: (\d+) MiB total", log)
    return None if match is None else int(match[1])


def visible_memory(pod: Outcome, *, is_mig: bool) -> dict[str, int | None]:
    """Return the memory, in MiB, that CUDA and nvidia-smi show in a probe; None: not shown."""
    match = re.search(r"^cuda ID 0: .*, (\d+)MB ", part(pod, "look").log, re.MULTILINE)
    return {
        # gpu-burn's megabytes are millions of bytes.
        "cuDeviceTotalMem": None if match is None else round(int(match[1]) * 10**6 / (1 << 20)),
        "cuMemGetInfo": device_mib(part(pod, "memory").log),
        "nvidia-smi": smi_total(part(pod, "nvidia-smi").log, is_mig=is_mig),
    }


def is_simulated(log: str) -> bool | None:
    """Return whether a pod found the simulated driver; None if it found none."""
    driver = re.search(r"^driver (simulated|real)$", log, re.MULTILINE)
    return None if driver is None else driver[1] == "simulated"


class Prefetched(Generic[Case, Result]):
    """Does the same for many cases at the same time; all are done when the first is answered."""

    def __init__(self, cases: Iterable[Case], work: Callable[[Case], Result], maximum: int) -> None:
        self._cases = tuple(cases)
        self._work = work
        self._maximum = maximum
        self._done: dict[str, Future[Result]] = {}

    def __getitem__(self, case: Case) -> Result:
        """Return what came of a case; a failure of its work is raised here."""
        if not self._done:
            self._done = self._worked_on(self._cases)
        if str(case) not in self._done:
            # Its node was away when the others were worked on, and is back.
            self._done |= self._worked_on([case])
        return self._done[str(case)].result()

    def _worked_on(self, cases: Sequence[Case]) -> dict[str, Future[Result]]:
        """Work on cases; a run that is stopped meanwhile waits for none, and begins no more."""
        threads = ThreadPoolExecutor(self._maximum)
        try:
            done = {str(queued): threads.submit(self._work, queued) for queued in cases}
            wait(done.values())
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        return done

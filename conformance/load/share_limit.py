"""Ask for more memory than a limited share has: alone, two at once, past the limiter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Verdict
from conformance.observe.device_memory import LIMIT_DEVIATION_MIB, share_sizes
from conformance.observe.scrape import scrape
from conformance.promise import DevicePromise

# mem-hog's exit codes: it got what it asked for, or the device has no more (ENOMEM).
GRANTED, REFUSED = 0, 12
# Of a share this large, two processes get more than half each with what their contexts take.
_ROOM_FOR_TWO_MIB = 2048
_STARTED, _NOTICED = 60, 30
# The driver's own library, by its SONAME the one that a program then asks for; and by MPS without
# the limit that it keeps of the container's variable.
_PAST = (
    "env -u CUDA_MPS_PINNED_DEVICE_MEM_LIMIT LD_PRELOAD=/usr/lib/divvy/driver/libcuda-driver.so.1"
)
_CODE = re.compile(r"^code (\w+) (\d+)$", re.MULTILINE)


def request_script(limit_mib: int) -> str:
    """Return a shell script that asks for memory in several ways and prints how each ended."""
    half = limit_mib * 6 // 10
    lines = [f"mem-hog --mib {limit_mib * 11 // 10} --chunk 64; echo code alone $?"]
    if limit_mib >= _ROOM_FOR_TWO_MIB:
        hog = f"mem-hog --mib {half} --chunk {half}"
        lines += [
            f"({hog} --hold 4; echo code first $?) & ({hog} --hold 4; echo code second $?) & wait",
            # Its parent ends at once; what it holds counts on, and is free when it ends.
            f"({hog} --hold 6 & ) ; sleep 2",
            f"{hog}; echo code beside $?",
            "sleep 8",
            f"{hog}; echo code after $?",
        ]
    return "\n".join(lines)


def judge_requests(sizes: Sequence[int], log: str) -> Verdict:
    """Judge the output of ``request_script`` on a share of one of these sizes."""
    limit_mib = max(sizes)
    codes = {name: int(code) for name, code in _CODE.findall(log)}
    two = sorted(codes.get(name, -1) for name in ("first", "second"))
    totals = [int(mib) for mib in re.findall(r"device: (\d+) MiB total", log)]
    granted = [int(mib) for mib in re.findall(r"^allocated (\d+) MiB", log, re.MULTILINE)]
    words = {
        "beyond the limit": "refused" if codes.get("alone") == REFUSED else "not refused",
        "the size shown": "the limit" if _is_limit(totals, sizes) else f"{sorted(set(totals))}",
        "the most granted": _granted(max(granted, default=0), limit_mib),
        "two at once": "one of two" if two == [GRANTED, REFUSED] else f"exit codes {two}",
        "beside an orphan": "refused" if codes.get("beside") == REFUSED else "not refused",
        "after its end": "granted" if codes.get("after") == GRANTED else "not granted",
    }
    expected = ["refused", "the limit", "within it", "one of two", "refused", "granted"]
    if limit_mib < _ROOM_FOR_TWO_MIB:
        words = dict(list(words.items())[:3])
    pairs = zip(words, expected, strict=False)
    return (
        ", ".join(f"{what}: {word}" for what, word in pairs),
        ", ".join(f"{what}: {word}" for what, word in words.items()),
    )


def _granted(mib: int, limit_mib: int) -> str:
    """Check what was granted against the limit: a share that grants nothing is broken."""
    if not mib:
        return "nothing"
    return "within it" if mib <= limit_mib else "beyond it"


def _is_limit(totals: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return whether all programs were shown one of the sizes, and the same one."""
    near = (all(abs(mib - size) <= LIMIT_DEVIATION_MIB for mib in totals) for size in sizes)
    return bool(totals) and any(near)


def ask(pods: PodNamespace, promise: DevicePromise) -> Outcome:
    """Run the requests in one pod on a share."""
    script = request_script(max(share_sizes(promise)))
    command = ["/bin/sh", "-c", script]
    return pods.run(promise.node.name, command, promise.resource, _STARTED + 60)


@dataclass(frozen=True)
class PastTheLimiter:
    """What came of a pod that uses the driver's own library: its log, and MiB reported above."""

    log: str
    over_mib: float | None


def go_past(target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise) -> PastTheLimiter:
    """Take a fifth more than the share past the limiter, until the metrics name the pod."""
    mib = (promise.device.memory_mib or 0) * 12 // 10
    script = f"{_PAST} mem-hog --mib {mib} --hold 120"
    name = pods.start(promise.node.name, ["/bin/sh", "-c", script], promise.resource)
    try:
        pods.until(lambda: "allocated" in pods.log(name), _STARTED)

        def over() -> Sequence[float]:
            page = scrape(target, promise.node.name)
            return page.values("divvy_memory_over_limit_mib", pod=name) if page else []

        values = last_look(over, len, _NOTICED)
        return PastTheLimiter(pods.log(name), values[0] if values else None)
    finally:
        pods.remove(name)

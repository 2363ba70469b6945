"""Measures one process of an MPS share: memory up to its limit, and a part of the SMs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Verdict
from conformance.observe.device_memory import share_sizes
from conformance.promise import DevicePromise
from conformance.skips import not_made
from divvy.model.enforcement import MPS_V3_SINCE
from divvy.model.sharing import ALL_COMPUTE
from divvy.model.versions import is_older
from divvy.plan.predict.enforcement_warnings import DRIVER_LABEL

_SECONDS = 120
_CHUNK_MIB = 64
_LEAST_MIB = 1024
_GRANTED, _REFUSED = "0", "12"
_DROP = "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; "
_HOG = re.compile(r"^allocated (\d+) MiB .* (\d+) MiB free, (\d+) SMs; ", re.MULTILINE)
_CODE = re.compile(r"^code (\d+)$", re.MULTILINE)


def ask(pods: PodNamespace, promise: DevicePromise) -> Outcome:
    """Ask in a pod for little, then for more than a share, and print what came of it.

    If a share is a namespace, the second process has dropped its container's variables.
    """
    sizes = share_sizes(promise)
    if min(sizes) < _LEAST_MIB:
        not_made(f"a share of {min(sizes)} MiB has no room for a context and an allocation")
    beyond = max(sizes) * 11 // 10
    drop = _DROP if has_namespaces(promise) else ""
    script = "\n".join(
        f"{words}mem-hog --mib {mib} --chunk {_CHUNK_MIB}; echo code $?"
        for words, mib in (("", _CHUNK_MIB), (drop, beyond))
    )
    return pods.run(promise.node.name, ["/bin/sh", "-c", script], promise.resource, _SECONDS)


def has_namespaces(promise: DevicePromise) -> bool:
    """Return whether MPS holds a share whatever its container's variables say, by its version 3."""
    driver = promise.node.labels.get(DRIVER_LABEL, "")
    return bool(driver) and not is_older(driver, MPS_V3_SINCE)


def judge_memory(sizes: Sequence[int], log: str) -> Verdict:
    """Judge what ``ask`` printed on a share of one of these sizes, in MiB.

    MPS limits what is free; the total stays the GPU's. A context takes some of the limit.
    """
    expected = "little: granted; beyond the limit: refused, within it; shown as free: within it"
    answers, codes = _HOG.findall(log), _CODE.findall(log)
    if len(answers) != 2 or len(codes) != 2:
        return expected, f"{len(answers)} of 2 answers, {len(codes)} of 2 exit codes"
    granted_mib, free_mib = (max(int(answer[column]) for answer in answers) for column in (0, 1))
    limit = max(sizes)
    # A context of a process takes some hundred MiB; a limit of another share is another number.
    most_mib = max(granted_mib, free_mib)
    if 2 * most_mib < limit:
        return expected, f"no more than {most_mib} MiB of {limit} granted or shown as free"
    words = (
        f"little: {'granted' if codes[0] == _GRANTED else 'not granted'}",
        f"beyond the limit: {'refused' if codes[1] == _REFUSED else 'not refused'}, "
        f"{'within it' if granted_mib <= limit else f'{granted_mib} MiB granted of {limit}'}",
        f"shown as free: {'within it' if free_mib <= limit else f'{free_mib} MiB of {limit}'}",
    )
    return expected, "; ".join(words)


def judge_sms(promise: DevicePromise, log: str) -> Verdict:
    """Judge on how many SMs a process computes; drivers round the part to whole pairs of SMs."""
    sms, threads = promise.device.sms, promise.mps.threads if promise.mps else None
    counts = sorted({int(count) for _, _, count in _HOG.findall(log)})
    if threads == ALL_COMPUTE:
        not_made("a share of all SMs shows nothing")
    if sms is None or threads is None or not counts:
        return "a number of SMs", f"SMs shown: {counts}, of {sms}, of which {threads} %"
    part = sms * threads / 100
    expected = f"{threads} % of {sms} SMs"
    is_part = len(counts) == 1 and abs(counts[0] - part) <= 2
    return expected, expected if is_part else f"{', '.join(map(str, counts))} of {sms} SMs"

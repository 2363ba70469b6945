"""Pods that claim GPUs by size, whole or as MIG devices, and what comes of them."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cluster.pod_spec import OWN
from conformance.cluster.pods import Outcome, PodNamespace, is_of_rules, without_names
from conformance.evidence import Verdict
from conformance.implementation import Implementation
from conformance.load.share_limit import GRANTED, REFUSED
from conformance.promise import NodePromise
from conformance.skips import not_made
from divvy.kube.errors import ApiError
from divvy.kube.kind import RESOURCE_CLAIM
from divvy.model.claim_names import CORES, MEMORY
from divvy.model.claims import Shares
from divvy.model.stack import Names

_USUAL_MIB = 3000
_CORES = 30
# A kubelet starts one after the other, a slow one some seconds each.
_STARTED, _STARTED_PER_POD = 90, 3
_CODE = re.compile(r"^code (\w+) (\d+)$", re.MULTILINE)
_TOTAL_MEMORY = re.compile(r"\d+MiB\s*/\s*(\d+)MiB")
# Of each GPU these parts, in the order in which pods ask for them.
_PARTS = (0.3, 0.05, 0.2, 0.4, 0.1, 0.25, 0.15, 0.35)


@dataclass(frozen=True)
class Size:
    """A share: MiB, and per cent of a GPU's time."""

    memory_mib: int
    cores: int = _CORES


def limits(names: Names, count: int, size: Size) -> dict[str, Any]:
    """Return the resources of a container that asks for shares."""
    gpu_limits = {
        names.gpu: str(count),
        names.memory: str(size.memory_mib),
        names.cores: str(size.cores),
    }
    return {"limits": {**gpu_limits, "memory": "2Gi"}}


def shares_of(node: NodePromise) -> Shares | None:
    """Return how the GPUs of a node are shared by size, None if they are not."""
    every = (gpu.claims.shares for gpu in node.plan.gpus if gpu.claims is not None)
    return next((shares for shares in every if shares is not None), None)


def open_shares(node: NodePromise) -> tuple[Shares, ...]:
    """Return the shares of each GPU that are not for tenants alone."""
    offers = (gpu.claims for gpu in node.plan.gpus if gpu.claims and not gpu.claims.tenants)
    return tuple(offer.shares for offer in offers if offer.shares is not None)


def gpus_of_tenants(node: NodePromise, tenants: Sequence[str]) -> int:
    """Return the number of GPUs with shares for at least one of these tenants."""
    offers = (gpu.claims for gpu in node.plan.gpus if gpu.claims and gpu.claims.shares)
    return sum(not set(tenants).isdisjoint(offer.tenants) for offer in offers)


def tenants_without_gpu(seen: Mapping[str, Collection[str]], gpus: int) -> list[str]:
    """Return the tenants that should have got a GPU and have none; ``seen`` has their GPUs' UUIDs.

    With one GPU for all of them the first tenant keeps the others waiting, but one has it.
    """
    waiting = [tenant for tenant, uuids in seen.items() if not uuids]
    return waiting if gpus > 1 or len(waiting) == len(seen) else []


@contextlib.contextmanager
def requested_share(
    pods: PodNamespace, implementation: Implementation, names: Names, size: Size
) -> Iterator[dict[str, Any]]:
    """Give the fields of a PodRequest for a share: its limits, or a claim of another driver's."""
    if implementation.is_divvy:
        yield {"resources": limits(names, 1, size)}
        return
    with resource_claim(pods, claim_spec(share_request(implementation, size))) as name:
        yield {"claim": name}


def share_request(implementation: Implementation, size: Size) -> dict[str, Any]:
    """Return how a claim asks for a share."""
    requests = {MEMORY: f"{size.memory_mib}Mi"}
    if implementation.divides_time:
        requests[CORES] = str(size.cores)
    return {"deviceClassName": implementation.share_class, "capacity": {"requests": requests}}


def claim_spec(device_request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of a claim for one device."""
    return {"devices": {"requests": [{"name": "gpu", "exactly": device_request}]}}


@contextlib.contextmanager
def resource_claim(pods: PodNamespace, spec: dict[str, Any]) -> Iterator[str]:
    """Give the name of a claim for pods of a namespace, and remove it whatever happens."""
    name = f"c-{secrets.token_hex(4)}"
    metadata: Any = {"name": name, "namespace": pods.name, "labels": OWN}
    try:
        pods.api.create(RESOURCE_CLAIM, {"metadata": metadata, "spec": spec})
    except ApiError as problem:
        if is_of_rules(problem):
            not_made(f"the cluster does not admit our claim: {without_names(str(problem))}")
        raise
    try:
        yield name
    finally:
        pods.api.delete(RESOURCE_CLAIM, name, namespace=pods.name)


def usual_size(node: NodePromise, step_mib: int) -> Size:
    """Return a size that every GPU of the node has several times."""
    total = min(gpu.model.memory_mib for gpu in node.plan.gpus)
    return Size(rounded(min(_USUAL_MIB, total // 4), step_mib))


def rounded(memory_mib: int, step_mib: int) -> int:
    """Return a size as it is granted: the next multiple of the step."""
    return -(-memory_mib // step_mib) * step_mib


def ask_and_exceed(
    pods: PodNamespace, node: NodePromise, size: Size, request: Mapping[str, Any]
) -> Outcome:
    """Look at a share of a size, take half of it, then ask for more than all of it."""
    half, more = size.memory_mib // 2, size.memory_mib * 11 // 10
    script = (
        "nvidia-smi; nvidia-smi -L; "
        f"mem-hog --mib {half} --chunk 64; echo code half $?; "
        f"mem-hog --mib {more} --chunk 64; echo code beyond $?"
    )
    return pods.run(node.name, ["/bin/sh", "-c", script], None, _STARTED, **request)


def judge_size(size: Size, outcome: Outcome) -> Verdict:
    """Judge the output of ``ask_and_exceed``."""
    codes = {name: int(code) for name, code in _CODE.findall(outcome.log)}
    sizes = memory_sizes_in(outcome.log)
    words = {GRANTED: "granted", REFUSED: "refused"}
    half, beyond = codes.get("half"), codes.get("beyond")
    return (
        f"{size.memory_mib} MiB shown, half of it granted, more than it refused",
        f"{', '.join(map(str, sizes)) or 'no'} MiB shown, "
        f"half of it {words.get(half if half is not None else -1, half)}, "
        f"more than it {words.get(beyond if beyond is not None else -1, beyond)}",
    )


def refused_for_gpus(refusals: Mapping[str, str | None], names: Sequence[str]) -> Verdict:
    """Judge how pods were refused that ask for what no GPU can give.

    A refusal that names none of our resources is of another policy, and was first: what Divvy
    would have said is open.
    """
    accepted = [what for what, refusal in refusals.items() if refusal is None]
    other = [
        refusal
        for refusal in refusals.values()
        if refusal is not None and not any(name in refusal for name in names)
    ]
    if other and not accepted:
        not_made(f"the cluster refuses our pods for something else: {other[0]}")
    return "accepted: nothing", f"accepted: {', '.join(accepted) or 'nothing'}"


def memory_sizes_in(log: str) -> list[int]:
    """Return the total memory of each GPU in the output of nvidia-smi."""
    return [int(mib) for mib in _TOTAL_MEMORY.findall(log)]


@contextlib.contextmanager
def burst(
    pods: PodNamespace,
    node: NodePromise,
    sizes: Sequence[Size],
    request: Callable[[Size], contextlib.AbstractContextManager[Mapping[str, Any]]],
    seconds: int,
) -> Iterator[Mapping[str, Size]]:
    """Start a pod for each size at once; give them by name when all have started or wait.

    Each runs on for so many seconds after the last of them may have started.
    """
    patience = _STARTED + _STARTED_PER_POD * len(sizes)
    script = ["/bin/sh", "-c", f"nvidia-smi; sleep {patience + seconds}"]
    started: dict[str, Size] = {}
    with contextlib.ExitStack() as requests:
        try:
            for size in sizes:
                fields = requests.enter_context(request(size))
                started[pods.start(node.name, script, None, **fields)] = size
            pods.until(lambda: all(_decided(pods, name) for name in started), patience)
            yield started
        finally:
            pods.remove(*started)


def _decided(pods: PodNamespace, name: str) -> bool:
    return "MiB" in pods.log(name) or bool(pods.unschedulable(name))


def burst_sizes(node: NodePromise, step_mib: int) -> list[Size]:
    """Return sizes that together are more than the node has, so that some pods have to wait."""
    total = min(gpu.model.memory_mib for gpu in node.plan.gpus)
    gpus = len(node.plan.gpus)
    return [
        Size(rounded(int(total * part), step_mib), max(1, int(100 * part)))
        for _ in range(gpus)
        for part in _PARTS
    ][: 6 * gpus]

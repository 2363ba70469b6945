"""Random pods: what each asks for, and what it has to get."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.claim_walk.hardware import ALL_CORES, PARTS, Gpu
from tests.render.objects.claims.api_server import CORES, GPU, MEMORY, NO, PERCENTAGE, USE, pod

NAMESPACES = {"walk": "", "walk-prod": "prod", "walk-dev": "dev"}
_KINDS = {"gpu": 3, "sized": 8, "percentage": 3, "cores": 1, "mig": 6, "shared": 2, "by hand": 2}
BY_HAND = "walk=by-hand"
_SIZES = (1, 500, 3000, 6000, 10240, 20000, 40960, 45000, 80000)


@dataclass(frozen=True)
class Ask:
    """One container: so many devices of a kind, each of this size.

    ``memory`` is MiB, ``percent`` of a GPU's; ``cores`` None is for the default.
    """

    kind: str
    count: int
    memory: int | None = None
    percent: int | None = None
    cores: int | None = None
    profile: str = ""
    use: str = ""
    no: str = ""
    tenant: str = ""

    @property
    def limits(self) -> dict[str, int | str]:
        """Return what a person writes."""
        if self.kind == "gpu":
            return {GPU: self.count}
        if self.kind == "mig":
            return {f"nvidia.com/mig-{self.profile}": self.count}
        if self.kind == "shared":
            return {"nvidia.com/gpu.shared": self.count}
        sizes = {MEMORY: self.memory, PERCENTAGE: self.percent, CORES: self.cores}
        return {GPU: self.count, **{name: size for name, size in sizes.items() if size is not None}}

    def fits(self, gpu: Gpu) -> bool:
        """Return whether an idle GPU could give one of it."""
        if self.kind == "gpu":
            return self.allows(gpu)
        if self.kind == "mig":
            return gpu.offer.mig and self.profile in gpu.model.parts
        if not gpu.offer.shares or not self.allows(gpu):
            return False
        if gpu.offer.tenants and self.tenant not in gpu.offer.tenants:
            return False
        if self.tenant and not gpu.offer.tenants:
            return False
        return self.share_of(gpu)[0] <= gpu.share_mib

    def allows(self, gpu: Gpu) -> bool:
        """Return whether the annotations leave a GPU's model."""
        return self.use in ("", gpu.model.word) and self.no != gpu.model.word

    def share_of(self, gpu: Gpu) -> tuple[int, int]:
        """Return the MiB and per cent that it has to take of a GPU's shares."""
        offer, total = gpu.offer, gpu.share_mib
        memory, cores = self.memory, self.cores
        if self.kind == "shared":
            memory = total if offer.default_mib is None else offer.default_mib
            cores = ALL_CORES if offer.default_mib is None else max(1, ALL_CORES * memory // total)
        elif memory is None:
            percent = 100 if self.percent is None else self.percent
            memory = max(1, total * percent // 100)
            cores = cores or (ALL_CORES if percent == 100 else 1)
        return -(-memory // offer.step_mib) * offer.step_mib, cores or 1


@dataclass(frozen=True)
class WalkPod:
    """A pod of the walk: its body for the API server, and what it asks for."""

    namespace: str
    name: str
    asks: tuple[Ask, ...]
    body: dict[str, Any]
    template: dict[str, Any] | None = None


def random_pod(random: Random, name: str) -> WalkPod:
    """Return a pod."""
    namespace = random.choice(list(NAMESPACES))
    tenant = NAMESPACES[namespace]
    (kind,) = random.choices(list(_KINDS), list(_KINDS.values()))
    use, no = random.choice([("", "")] * 4 + [("A100", ""), ("H100", ""), ("", "A100")])
    if kind == "by hand":
        return _by_hand(random, namespace, name)
    if kind in ("gpu", "mig", "shared"):
        use, no = (use, no) if kind == "gpu" else ("", "")
        asks = (_plain(random, kind, use, no),)
    else:
        number = 2 if random.random() < 0.15 else 1
        asks = tuple(_sized(random, kind, use, no, tenant) for _ in range(number))
    body = pod(*(ask.limits for ask in asks), namespace=namespace)
    annotations = {USE: use, NO: no}
    body["metadata"]["annotations"] = {key: word for key, word in annotations.items() if word}
    body["metadata"]["name"] = name
    return WalkPod(namespace, name, asks, body)


def _plain(random: Random, kind: str, use: str, no: str) -> Ask:
    profile = ""
    if kind == "mig":
        profile = random.choice(PARTS)
    count = random.choice((1, 1, 1, 2, 3)) if kind != "shared" else 1
    return Ask(kind, count, profile=profile, use=use, no=no)


def _sized(random: Random, kind: str, use: str, no: str, tenant: str) -> Ask:
    cores = random.choice((None, 1, 10, 30, 50, 100))
    count = random.choice((1, 1, 1, 1, 2))
    if kind == "cores":
        return Ask(kind, count, cores=cores or 20, use=use, no=no, tenant=tenant)
    if kind == "percentage":
        percent = random.choice((1, 10, 25, 50, 100))
        return Ask(kind, count, percent=percent, cores=cores, use=use, no=no, tenant=tenant)
    return Ask(kind, count, random.choice(_SIZES), None, cores, use=use, no=no, tenant=tenant)


def _by_hand(random: Random, namespace: str, name: str) -> WalkPod:
    """Return a pod with a claim that a person has written."""
    tenant = NAMESPACES[namespace]
    size = random.choice(_SIZES)
    cores = random.choice((1, 30, 100))
    exactly = {
        "deviceClassName": f"divvy-share-{tenant}" if tenant else "divvy-share",
        "capacity": {"requests": {"memory": f"{size}Mi", "cores": str(cores)}},
    }
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": f"mine-{name}",
            "namespace": namespace,
            "labels": dict([BY_HAND.split("=")]),
        },
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
    }
    body = pod({}, namespace=namespace)
    body["metadata"]["name"] = name
    body["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": f"mine-{name}"}]
    body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "own"}]}
    ask = Ask("by hand", 1, size, None, cores, tenant=tenant)
    return WalkPod(namespace, name, (ask,), body, template)

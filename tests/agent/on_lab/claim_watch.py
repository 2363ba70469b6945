"""Every event of the lab's ResourceClaims, and what their status adds up to."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.cluster.tools import KUBERNETES
from tests.running_lab import RunningLab

_GPU = len("gpu-") + 36
_SHARE = "-share-"


@dataclass(frozen=True)
class Share:
    """A share that a claim's status names: a GPU, MiB, and the tenant it is for."""

    gpu: str
    memory_mib: int
    tenant: str


@dataclass
class ClaimWatch:
    """What the events have said so far; `wrong` has a line for each broken rule."""

    limits_mib: dict[str, int]
    events: int = 0
    wrong: list[str] = field(default_factory=list)
    tenants_seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    most_shares: int = 0
    _held: dict[str, list[Share]] = field(default_factory=dict)

    def see(self, event: dict[str, Any]) -> None:
        """Take one event, and check all claims after it."""
        self.events += 1
        claim = event["object"]
        uid = claim["metadata"]["uid"]
        self._held.pop(uid, None)
        if event["type"] != "DELETED":
            self._held[uid] = shares_of(claim)
            self.tenants_seen.update((share.gpu, share.tenant) for share in self._held[uid])
        self._check()

    def _check(self) -> None:
        shares = [share for held in self._held.values() for share in held]
        self.most_shares = max(self.most_shares, len(shares))
        for gpu in {share.gpu for share in shares}:
            here = [share for share in shares if share.gpu == gpu]
            tenants = sorted({share.tenant for share in here})
            if len(tenants) > 1:
                self.wrong.append(f"event {self.events}: {gpu} has shares of {tenants}")
            memory = sum(share.memory_mib for share in here)
            if memory > self.limits_mib[gpu]:
                self.wrong.append(f"event {self.events}: {gpu} has given out {memory} MiB")

    @property
    def sums_mib(self) -> dict[str, int]:
        """Return the MiB given out of each GPU now."""
        sums: Counter[str] = Counter()
        for held in self._held.values():
            for share in held:
                sums[share.gpu] += share.memory_mib
        return dict(sums)


def shares_of(claim: dict[str, Any]) -> list[Share]:
    """Return the shares that a claim's status says it holds."""
    devices = claim.get("status", {}).get("allocation", {}).get("devices", {})
    shares = []
    for result in devices.get("results", []):
        memory = result["consumedCapacity"]["memory"]
        assert memory.endswith("Mi"), memory
        _, _, tenant = result["device"][_GPU:].partition(_SHARE)
        shares.append(Share(result["device"][:_GPU], int(memory[:-2]), tenant))
    return shares


@contextmanager
def watched_claims(lab: RunningLab, limits_mib: dict[str, int]) -> Iterator[ClaimWatch]:
    """Follow the events of all claims; GPUs have these MiB."""
    command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={lab.kubeconfig}"]
    command += ["get", "resourceclaims", "-A", "--watch", "--output-watch-events", "-o", "json"]
    watch = ClaimWatch(limits_mib)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        reader = threading.Thread(target=_read, args=(process, watch))
        reader.start()
        try:
            yield watch
        finally:
            process.terminate()
            reader.join()


def _read(process: subprocess.Popen[str], watch: ClaimWatch) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        watch.see(json.loads(line))

"""The walk's cluster: API server, stock scheduler, template maker; nodes publish, as agents do."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from divvy.agent.claims.offers import wanted_offers
from divvy.agent.gpu.desired import DesiredState
from divvy.model import DesiredGpu, DesiredNode
from divvy.model.claims import Claims
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import same_spec, slice_specs
from tests.agent.devices import gpu as known_gpu
from tests.agent.devices import snapshot
from tests.bare_cluster import bare_cluster
from tests.claim_templates.conftest import MakerProcess
from tests.claim_templates.stock_scheduler import StockScheduler, make_node, running_scheduler
from tests.claim_walk.asks import NAMESPACES
from tests.claim_walk.hardware import MODELS, OFFERS, Gpu
from tests.claim_walk.oracle import Broken, Oracle
from tests.render.objects.claims.api_server import ApiServer, pod, policies_of

_REMEMBERED_SECONDS = 3600.0
_HEARD_SECONDS = 0.5
NODES = ("walk-0", "walk-1", "walk-2")
_CLUSTER = {
    "profiles": {name: offer.value for name, offer in OFFERS.items()},
    "pools": {"all": {"profile": "by-size"}},
}
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


@dataclass
class Watcher:
    """The claims as of the last event; looks at them after each. ``events`` counts."""

    server: ApiServer
    oracle: Oracle | None = None
    events: int = 0
    broken: Exception | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, dict[str, Any]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Return the claims there are; raises what the oracle has found."""
        with self._lock:
            if self.broken is not None:
                raise self.broken
            return list(self._claims.values())

    def _run(self) -> None:
        try:
            for event in self.server.events(CLAIMS):
                self._look(event)
        except Exception as error:
            self.broken = self.broken or error

    def _look(self, event: dict[str, Any]) -> None:
        claim = event["object"]
        with self._lock:
            if event["type"] == "DELETED":
                self._claims.pop(claim["metadata"]["uid"], None)
            else:
                self._claims[claim["metadata"]["uid"]] = claim
            self.events += 1
            if self.oracle is not None and self.broken is None:
                try:
                    self.oracle.check(self._claims.values())
                except (Broken, KeyError) as broken:
                    self.broken = broken


class WalkCluster:
    """A cluster for one sequence after the other."""

    def __init__(self, server: ApiServer, scheduler: StockScheduler) -> None:
        self.server = server
        self.scheduler = scheduler
        self.watcher = Watcher(server)
        self._generation = 0
        self._offered: dict[str, dict[str, OfferedGpu]] = {}

    def publish(self, gpus: Sequence[Gpu]) -> None:
        """Give the nodes other GPUs; no claim may have any of the old ones."""
        self._generation += 1
        self._offered = {
            node: _offered([gpu for gpu in gpus if gpu.node == node]) for node in NODES
        }
        wanted = {name: spec for node in NODES for name, spec in self._specs(node, {}).items()}
        have = self.server.send("GET", _SLICES).body["items"]
        for old in have:
            if old["metadata"]["name"] not in wanted:
                self.server.send("DELETE", f"{_SLICES}/{old['metadata']['name']}")
        self._write(wanted)
        slices = self.server.send("GET", _SLICES).body["items"]
        self.watcher.oracle = Oracle(gpus, slices)
        # No agent drops a device as suddenly: a scheduler under load may still have the old slices.
        time.sleep(_HEARD_SECONDS)

    def spread(self) -> None:
        """Renew the order of devices, as agents do after each change of what is held."""
        oracle = self.watcher.oracle
        assert oracle is not None
        tasks: dict[str, int] = {}
        for allocation in oracle.allocations(self.watcher.claims):
            tasks[allocation.gpu.uuid] = tasks.get(allocation.gpu.uuid, 0) + 1
        for node in NODES:
            self._write(self._specs(node, tasks))

    def wake(self) -> None:
        """Label a node: the scheduler looks at all pods again."""
        patch = f'{{"metadata":{{"labels":{{"walk":"{time.monotonic()}"}}}}}}'
        for node in NODES:
            self.server.cluster.kubectl("patch", f"node/{node}", f"--patch={patch}", "--type=merge")

    def _specs(self, node: str, tasks: dict[str, int]) -> dict[str, dict[str, Any]]:
        if not self._offered[node]:
            return {}
        specs = slice_specs(node, self._offered[node].values(), {}, tasks, {}, {})
        return {
            name: {**spec, "pool": {**spec["pool"], "generation": self._generation}}
            for name, spec in specs.items()
        }

    def _write(self, wanted: dict[str, dict[str, Any]]) -> None:
        have = {
            resource_slice["metadata"]["name"]: resource_slice
            for resource_slice in self.server.send("GET", _SLICES).body["items"]
        }
        for name, spec in wanted.items():
            old = have.get(name)
            current = old is not None and (
                old["spec"]["pool"]["generation"] == spec["pool"]["generation"]
            )
            if current and same_spec(old["spec"], spec):
                continue
            metadata = {"name": name}
            if old is not None:
                metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": metadata,
                "spec": json.loads(json.dumps(spec)),
            }
            method, path = ("POST", _SLICES) if old is None else ("PUT", f"{_SLICES}/{name}")
            answer = self.server.send(method, path, body)
            assert answer.status < 300, answer.body


def published(node: str, gpus: Sequence[Gpu]) -> dict[str, dict[str, Any]]:
    """Return the specs of the slices that an agent publishes for these GPUs, by name."""
    return json.loads(json.dumps(slice_specs(node, _offered(gpus).values(), {}, {}, {}, {})))


def _offered(gpus: Sequence[Gpu]) -> dict[str, OfferedGpu]:
    """Return what an agent with these GPUs decides to offer."""
    layouts = tuple(
        DesiredGpu(
            gpu.uuid, gpu.index, 0, None, (), Claims.model_validate(gpu.offer.value["claims"])
        )
        for gpu in gpus
    )
    seen = [
        replace(
            known_gpu(gpu.index),
            uuid=gpu.uuid,
            product=gpu.model.product,
            memory_mib=gpu.model.memory_mib,
        )
        for gpu in gpus
    ]
    desired = DesiredState(node=DesiredNode("walk", "walk", "pool", layouts, ()), config="{}")
    return wanted_offers(desired, snapshot(*seen), {})


def _every_gpu() -> list[Gpu]:
    """Return a GPU of each kind: a pod that asks for a percentage finds all sizes known."""
    kinds = [(model, profile) for model in MODELS for profile in OFFERS]
    return [
        Gpu(f"GPU-any-{index}", index, NODES[0], model, profile)
        for index, (model, profile) in enumerate(kinds)
    ]


def _knows_sizes(server: ApiServer) -> bool:
    """Return whether the template of a percentage has an alternative for every size of shares."""
    sizes = {gpu.share_mib for gpu in _every_gpu() if gpu.offer.shares and not gpu.offer.tenants}
    name, path = "sizes", "/api/v1/namespaces/walk/pods"
    body = pod({"nvidia.com/gpumem-percentage": 1}, namespace="walk")
    body["metadata"]["name"] = name
    server.send("POST", path, body)
    templates = "/apis/resource.k8s.io/v1/namespaces/walk/resourceclaimtemplates"
    response = server.send("GET", f"{templates}/divvy-1x1p")
    if response.status != 200:
        return False
    ((request),) = response.body["spec"]["spec"]["devices"]["requests"]
    known = len(request["firstAvailable"]) == len(sizes)
    if known:
        server.send("DELETE", f"{path}/{name}", gracePeriodSeconds="0")
    return known


@contextlib.contextmanager
def walk_cluster() -> Iterator[WalkCluster]:
    """Start the cluster; yield it when its policies have taken effect."""
    with (
        tempfile.TemporaryDirectory(prefix="claim-walk-") as text,
        bare_cluster("resourceclaim-controller") as bare,
        contextlib.closing(ApiServer(bare)) as server,
    ):
        folder = Path(text)
        server.apply(*policies_of(_CLUSTER))
        for name, tenant in NAMESPACES.items():
            server.namespace(name, **({"divvy.gpu/tenant": tenant} if tenant else {}))
        for node in NODES:
            make_node(server, node)
        maker = MakerProcess(folder, server, server.cluster.server, _REMEMBERED_SECONDS)
        try:
            maker.start()
            asks = pod({"nvidia.com/gpumem": 1}, namespace="walk")
            server.until(lambda: bool(server.dry_run(asks).templates))
            server.until(maker.ready)
            with running_scheduler(server, folder) as scheduler:
                cluster = WalkCluster(server, scheduler)
                cluster.publish(_every_gpu())
                server.until(lambda: _knows_sizes(server))
                yield cluster
        finally:
            maker.kill()

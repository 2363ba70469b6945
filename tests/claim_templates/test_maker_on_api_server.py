"""The template maker's process at a real API server, with its own account and rights."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.api_server.claims_api import ClaimsApi
from divvy.agent.claims import retirement
from divvy.agent.claims.record import ClaimRecord
from divvy.claim_templates.offered import Share
from divvy.claim_templates.template import template_of
from divvy.model.claim_names import SizedRequest, template_name
from lab.fakes.scene import running, until
from tests.agent.claim_values import BY_SIZE, offered_gpu
from tests.claim_templates.conftest import MakerProcess
from tests.claim_templates.link import Link
from tests.render.objects.claims.api_server import CORES, MEMORY, PERCENTAGE, ApiServer, Limits, pod

pytestmark = pytest.mark.lab
MAKER = "divvy-system:divvy-claim-templates"
GROUP = "/apis/resource.k8s.io/v1"
TEMPLATES = GROUP + "/namespaces/{}/resourceclaimtemplates"


def create(server: ApiServer, namespace: str, name: str, *limits: Limits) -> None:
    body = pod(*limits, namespace=namespace)
    body["metadata"]["name"] = name
    answer = server.send("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert answer.status == 201, answer.body


def delete(server: ApiServer, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    server.send("DELETE", path, gracePeriodSeconds="0")


def template(server: ApiServer, namespace: str, name: str) -> dict[str, Any] | None:
    answer = server.send("GET", f"{TEMPLATES.format(namespace)}/{name}")
    return answer.body if answer.status == 200 else None


def spec_of(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj["spec"].items() if value}


def claims(server: ApiServer, namespace: str) -> list[dict[str, Any]]:
    items = server.send("GET", f"{GROUP}/namespaces/{namespace}/resourceclaims").body["items"]
    return list(items)


def resource_slice(server: ApiServer, name: str, *memory: str) -> None:
    """Make or change a slice with a share of each of the sizes."""
    devices = [
        {
            "name": f"d{number}",
            "allowMultipleAllocations": True,
            "attributes": {"kind": {"string": "share"}, "type": {"string": "nvidia-a100"}},
            "capacity": {"memory": {"value": size}},
        }
        for number, size in enumerate(memory)
    ]
    pool = {"name": f"{name}/divvy", "generation": 1, "resourceSliceCount": 1}
    server.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {"driver": "divvy.gpu", "nodeName": name, "pool": pool, "devices": devices},
        }
    )


def started(server: ApiServer, maker: MakerProcess) -> None:
    maker.start()
    server.until(maker.ready)


def test_gives_a_pod_its_template_and_claim(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    started(server, maker)
    create(server, namespace, "one", {MEMORY: 3072, CORES: 30}, {MEMORY: 3000})
    server.until(lambda: len(claims(server, namespace)) == 2)
    created = template(server, namespace, "divvy-1x3072m-30c")
    assert created is not None
    # As the API server keeps it: a template that differs would be made again forever.
    assert spec_of(created) == template_of(SizedRequest(1, 3072, "m", 30), {})
    assert created["metadata"]["labels"]["app.kubernetes.io/component"] == "claims"
    server.until(lambda: maker.figure("divvy_claim_templates") == 2)
    assert maker.figure("divvy_claim_templates_deleted_total") == 0
    assert maker.figure("divvy_claim_templates_failures_total") == 0
    assert maker.page("/healthz")[0] == 200
    assert maker.stop() == 0


def test_creates_the_template_of_a_pod_from_before_its_start(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    create(server, namespace, "early", {MEMORY: 3000})
    assert maker.page("/readyz")[0] == 0
    started(server, maker)
    server.until(lambda: len(claims(server, namespace)) == 1)
    maker.kill()
    # What happens meanwhile is seen by the next one.
    create(server, namespace, "late", {MEMORY: 4000})
    path = f"{TEMPLATES.format(namespace)}/divvy-1x3000m"
    assert server.send("DELETE", path).status == 200
    started(server, maker)
    server.until(lambda: len(claims(server, namespace)) == 2)
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)


def test_sizes_a_percentage_by_the_gpus(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    started(server, maker)
    create(server, namespace, "part", {PERCENTAGE: 25})
    server.until(lambda: maker.figure("divvy_claim_templates_waiting") == 1)
    resource_slice(server, "node-1", "40Gi")

    def amounts() -> list[str]:
        current = template(server, namespace, "divvy-1x25p")
        if current is None:
            return []
        (request,) = current["spec"]["spec"]["devices"]["requests"]
        return [
            alternative["capacity"]["requests"]["memory"]
            for alternative in request["firstAvailable"]
        ]

    server.until(lambda: amounts() == ["10Gi"])
    server.until(lambda: len(claims(server, namespace)) == 1)
    resource_slice(server, "node-1", "40Gi", "81559Mi")
    server.until(lambda: amounts() == ["10Gi", "20389Mi"])
    server.send("DELETE", f"{GROUP}/resourceslices/node-1")


def test_serves_other_namespaces_during_a_flood_of_sizes(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    flood, quiet = namespace, server.namespace(f"z-{namespace}")
    with ThreadPoolExecutor(4) as pool:
        sizes = range(1000, 1200)
        list(pool.map(lambda n: create(server, flood, f"p{n}", {MEMORY: n}), sizes))
    create(server, quiet, "one", {MEMORY: 3000})
    started(server, maker)

    def versions(where: str) -> list[int]:
        items = server.send("GET", TEMPLATES.format(where)).body["items"]
        return [int(obj["metadata"]["resourceVersion"]) for obj in items]

    server.until(lambda: len(versions(flood)) == len(sizes))
    mine, others = versions(quiet), versions(flood)
    before = sum(other < mine[0] for other in others)
    print(f"templates of the flood before the other namespace's: {before} of {len(others)}")
    assert before < 50
    assert len(mine) == 1


def test_deletes_a_template_that_no_pod_names_and_recreates_it(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    started(server, maker)
    create(server, namespace, "one", {MEMORY: 3000})
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)
    delete(server, namespace, "one")
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is None)
    create(server, namespace, "two", {MEMORY: 3000})
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)


def test_reconnects_to_a_silent_api_server(
    server: ApiServer, maker: MakerProcess, namespace: str, link: Link
) -> None:
    started(server, maker)
    link.silent = True
    create(server, namespace, "one", {MEMORY: 3000})
    server.until(lambda: not maker.ready())
    assert template(server, namespace, "divvy-1x3000m") is None
    assert maker.page("/healthz")[0] == 200
    link.silent = False
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)
    server.until(maker.ready)


def test_notices_a_connection_that_dies_silently(
    server: ApiServer, maker: MakerProcess, namespace: str, link: Link
) -> None:
    started(server, maker)
    # What was open stays silent, and new connections work.
    link.silent = True
    link.silent = False
    create(server, namespace, "one", {MEMORY: 3000})
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)
    link.cut()
    create(server, namespace, "two", {MEMORY: 4000})
    server.until(lambda: template(server, namespace, "divvy-1x4000m") is not None)


def refuse_templates(server: ApiServer, namespace: str) -> None:
    api, name = "admissionregistration.k8s.io/v1", f"none-{namespace}"
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["resourceclaimtemplates"],
    }
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = {
        "apiVersion": api,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
            "validations": [{"expression": "false", "message": "none here"}],
        },
    }
    binding = {
        "apiVersion": api,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    server.apply(policy, binding)
    request = {"name": "gpu", "exactly": {"deviceClassName": "divvy-gpu"}}
    probe = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    path = TEMPLATES.format(namespace)
    server.until(lambda: server.send("POST", path, probe, dryRun="All").refusal == "none here")


def test_creates_other_templates_when_one_is_refused(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    """A quota, a policy of somebody else's: what is refused is said once."""
    refuse_templates(server, namespace)
    other = server.namespace(f"{namespace}-b")
    started(server, maker)
    create(server, namespace, "one", {MEMORY: 3000})
    server.until(lambda: maker.figure("divvy_claim_templates_failures_total") > 0)
    create(server, other, "two", {MEMORY: 3000})
    server.until(lambda: template(server, other, "divvy-1x3000m") is not None)
    assert maker.log.count("none here") == 1
    assert maker.ready()


@pytest.mark.parametrize(
    "sized",
    [
        SizedRequest(32, 3000, "m", 30, tenant="prod"),
        SizedRequest(2, 50, "p", 30),
        SizedRequest(8, 1, "g", None, ("a100",), ("t4",)),
        SizedRequest(1, 100, "p"),
        SizedRequest(1, 3000, "m", 1, ("a100",), ("t4",)),
        # The costliest expressions that a name has room for.
        SizedRequest(1, 50, "p", 30, ("x",), tuple(f"b{n}" for n in range(16))),
        SizedRequest(
            *(1, 50, "p", 30, ("x", *(f"nvidia-{n}" for n in range(15)))),
            no_types=tuple(f"b{n}" for n in range(16)),
        ),
        SizedRequest(1, 3000, "m", 30, (f"a{'-a' * 110}",)),
    ],
    ids=template_name,
)
def test_creates_only_templates_that_the_api_server_keeps_as_they_are(
    server: ApiServer, namespace: str, sized: SizedRequest
) -> None:
    own = {"divvy.gpu/tenant": sized.tenant} if sized.tenant else {}
    server.namespace(namespace, **own)
    shares = {Share(1001 * n, "nvidia-x", None): 1 for n in range(1, 10)}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": template_name(sized), "namespace": namespace},
        "spec": template_of(sized, shares),
    }
    response = server.send("POST", TEMPLATES.format(namespace), body, account=MAKER, dryRun="All")
    assert response.refusal == ""
    assert spec_of(response.body) == body["spec"]


def test_follows_pods_at_once(server: ApiServer, maker: MakerProcess, namespace: str) -> None:
    started(server, maker)
    waits = []
    for number in range(20):
        size = 1000 + number
        create(server, namespace, f"p{number}", {MEMORY: size})
        start = time.monotonic()
        deadline = start + 60
        while template(server, namespace, f"divvy-1x{size}m") is None:
            assert time.monotonic() < deadline
        waits.append(time.monotonic() - start)
    # At rest it is 5 to 20 ms and the look of the test's own; this machine may be busy.
    print("template after its pod, median ms:", round(sorted(waits)[10] * 1000))
    assert sorted(waits)[10] < 2


DEEP = '{"a":' + "[" * 4900 + "]" * 4900 + "}"


def hostile_claims(parameters: str) -> str:
    """Return devices of a claim whose parameters are another driver's."""
    requests = '[{"name":"r","exactly":{"deviceClassName":"nobodys"}}]'
    opaque = f'{{"driver":"other.example","parameters":{parameters}}}'
    config = f'[{{"requests":["r"],"opaque":{opaque}}}]'
    return f'{{"devices":{{"requests":{requests},"config":{config}}}}}'


def send_text(server: ApiServer, path: str, text: str | bytes) -> None:
    answer = server._http.post(path, content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201, answer.text


def hostile_objects(server: ApiServer, namespace: str) -> None:
    """Make what a tenant with the role edit may: a claim and templates that nest 4,900 deep."""
    meta = f'"apiVersion":"resource.k8s.io/v1","metadata":{{"namespace":"{namespace}",'
    claim = f'{{"kind":"ResourceClaim",{meta}"name":"deep"}},"spec":{hostile_claims(DEEP)}}}'
    send_text(server, f"{GROUP}/namespaces/{namespace}/resourceclaims", claim)
    # Bytes that are no UTF-8: the API server keeps them.
    odd = claim.replace('"deep"', '"bytes"').replace(DEEP, '{"a":"?"}').encode()
    odd = odd.replace(b'"?"', b'"\xff\xfe"')
    send_text(server, f"{GROUP}/namespaces/{namespace}/resourceclaims", odd)
    labels = '"labels":{"app.kubernetes.io/name":"divvy","app.kubernetes.io/component":"claims"}'
    template = (
        f'{{"kind":"ResourceClaimTemplate",{meta}"name":"deep",{labels}}},'
        f'"spec":{{"spec":{hostile_claims(DEEP)}}}}}'
    )
    send_text(server, TEMPLATES.format(namespace), template)


def test_becomes_ready_and_works_beside_a_template_that_nests_deep(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    hostile_objects(server, namespace)
    started(server, maker)
    create(server, namespace, "one", {MEMORY: 3000})
    server.until(lambda: template(server, namespace, "divvy-1x3000m") is not None)
    server.until(lambda: f"{namespace}/deep" in maker.log)
    assert maker.log.count(f"{namespace}/deep") == 1
    time.sleep(5)  # longer than a watch of this maker may be silent
    assert maker.ready()
    assert maker.log.count(f"{namespace}/deep") == 1


async def test_claims_that_cannot_be_read_whole_keep_no_gpu(
    server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's retirement: a claim of another driver's class holds nothing of this node."""
    hostile_objects(server, namespace)
    monkeypatch.setenv("KUBECONFIG", str(server.cluster.kubeconfig))
    monkeypatch.setattr(retirement, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(retirement, "_SETTLED_SECONDS", 0.06)
    gpu = offered_gpu(0, BY_SIZE)
    publisher: Any = SimpleNamespace(current=True, forbidden=False)
    record = ClaimRecord({gpu.uuid: gpu}, {})
    api = ClaimsApi("n")
    followed = retirement.Retirement(
        api, publisher, "n/divvy", lambda: record, lambda: True, lambda: None
    )
    async with running(followed.run()):
        followed.begin(frozenset({gpu.uuid}))
        await until(lambda: followed.unallocated == {gpu.uuid})
    assert followed.unknown == ""
    await api.close()


def test_serves_a_namespace_in_turns_and_tells_it(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    """A tenant's pods name 64 templates each, by hand."""

    def flood(number: int) -> None:
        body = pod({"cpu": 1}, namespace=namespace)
        body["metadata"] |= {"name": f"flood{number}", "labels": {"divvy.gpu/by-size": "true"}}
        body["spec"]["resourceClaims"] = [
            {"name": f"c{at}", "resourceClaimTemplateName": f"divvy-1x{number * 64 + at + 1}m"}
            for at in range(64)
        ]
        answer = server.send("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        assert answer.status == 201, answer.body

    for number in range(6):
        flood(number)
    started(server, maker)
    server.until(lambda: maker.figure("divvy_claim_templates_waiting_pods") == 2, 120)

    def events_of_namespace() -> list[str]:
        events = server.send("GET", f"/api/v1/namespaces/{namespace}/events").body["items"]
        return [event["message"] for event in events if event["reason"] == "TooManySizes"]

    server.until(lambda: bool(events_of_namespace()))
    assert events_of_namespace()[0].startswith("2 pods of this namespace wait")
    delete(server, namespace, "flood0")
    delete(server, namespace, "flood1")
    server.until(lambda: maker.figure("divvy_claim_templates_waiting_pods") == 0, 120)

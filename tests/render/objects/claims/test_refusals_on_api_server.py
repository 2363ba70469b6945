"""What could only wait forever, or is another tenant's, is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.render.objects.claims.api_server import (
    CORES,
    GPU,
    MEMORY,
    NO,
    PERCENTAGE,
    USE,
    ApiServer,
    Limits,
    init,
    pod,
)
from tests.render.objects.claims.conftest import EARLIER

pytestmark = pytest.mark.lab
MAKER = "divvy-system:divvy-claim-templates"
_CLAIMS = "/apis/resource.k8s.io/{}/namespaces/{}/{}"
_TYPES = "; GPU types such as A100 or H100-PCIe, separated by commas, are expected"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({MEMORY: "4Gi"}, f"{MEMORY} is 4Gi, but counts MiB; write 4096"),
        ({MEMORY: "1536Mi"}, f"{MEMORY} is 1536Mi, but counts MiB; write 1536"),
        ({MEMORY: "4Ki"}, f"{MEMORY} is 4Ki, but counts MiB; write 1"),
        ({MEMORY: "4G"}, f"{MEMORY} is 4G, but counts MiB; write 3814"),
        (
            {MEMORY: 45000},
            f"{MEMORY} is 45000 (MiB); 1 to 40960, as much as the largest GPU of the cluster has, "
            "are possible",
        ),
        (
            {MEMORY: 0},
            f"{MEMORY} is 0; 1 or more MiB are expected, or leave it out for all memory",
        ),
        (
            {PERCENTAGE: 0},
            f"{PERCENTAGE} is 0; 1 to 100 per cent of a GPU's memory are expected",
        ),
        (
            {PERCENTAGE: 101},
            f"{PERCENTAGE} is 101; 1 to 100 per cent of a GPU's memory are expected",
        ),
        (
            {MEMORY: 1, CORES: 101},
            f"{CORES} is 101; 1 to 100 per cent of a GPU's time are expected",
        ),
        (
            {CORES: 1000},
            f"{CORES} is 1000; 1 to 100 per cent of a GPU's time are expected",
        ),
        ({GPU: 0, MEMORY: 1}, f"{GPU} is 0; 1 to 32 are expected with {MEMORY}"),
        ({GPU: 33, CORES: 1}, f"{GPU} is 33; 1 to 32 are expected with {CORES}"),
        ({MEMORY: "100E"}, f"{MEMORY} is 100E; a whole number such as 3000 is expected"),
    ],
)
def test_refuses_values_out_of_range(server: ApiServer, limits: Limits, message: str) -> None:
    assert server.dry_run(pod({"cpu": 1}, limits)).refusal == f"container main-1: {message}"
    answer = server.dry_run(pod({"cpu": 1}, initContainers=[init(limits)]))
    assert answer.refusal == f"container init-0: {message}"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({MEMORY: 1, PERCENTAGE: 3}, f"has both {MEMORY} and {PERCENTAGE}; leave one of them out"),
        *(
            (
                {MEMORY: 1, other: 1},
                f"has {other} together with {MEMORY}; request GPUs in only one way",
            )
            for other in (
                "nvidia.com/mig-1g.5gb",
                "nvidia.com/gpu.shared",
                "deviceclass.resource.kubernetes.io/divvy-gpu",
            )
        ),
    ],
)
def test_refuses_two_ways_to_ask_in_one_container(
    server: ApiServer, limits: Limits, message: str
) -> None:
    assert server.dry_run(pod(limits)).refusal == f"container main-0 {message}"


def test_admits_two_ways_to_ask_in_two_containers(server: ApiServer) -> None:
    assert server.dry_run(pod({MEMORY: 1}, {"nvidia.com/mig-1g.5gb": 1})).refusal == ""


@pytest.mark.parametrize("value", ["1500m", "0.5", "-1"])
def test_turns_nothing_into_a_claim_that_kubernetes_refuses(server: ApiServer, value: str) -> None:
    refusal = server.dry_run(pod({MEMORY: value})).refusal
    assert f"spec.containers[0].resources.limits[{MEMORY}]: Invalid value" in refusal
    assert "must be" in refusal


def test_keeps_requests_that_differ_from_limits(server: ApiServer) -> None:
    asking = pod({MEMORY: 3000})
    asking["spec"]["containers"][0]["resources"]["requests"] = {MEMORY: 2000}
    assert f"must be equal to {MEMORY} limit of 3k" in server.dry_run(asking).refusal


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({USE: "A100!"}, f"the annotation {USE} has A100!{_TYPES}"),
        ({NO: "T4;V100"}, f"the annotation {NO} has T4;V100{_TYPES}"),
        ({USE: "A100,a\nb"}, f"the annotation {USE} has a b{_TYPES}"),
        ({USE: "-" * 100}, f"the annotation {USE} has {'-' * 40}{_TYPES}"),
        ({USE: "A100,Tenant"}, f"the annotation {USE} has tenant, which is not a GPU type"),
        ({NO: "use"}, f"the annotation {NO} has use, which is not a GPU type"),
        (
            {USE: ",".join(f"A100-{n}" for n in range(17))},
            f"the annotation {USE} has 17 GPU types; 16 at most are possible",
        ),
        (
            {NO: ",".join(f"{'x' * 30}{n}" for n in range(16))},
            "the annotations name too many GPU types: 531 characters with the sizes, 253 at most "
            "are possible",
        ),
        (
            {USE: "A100", NO: "T4, a100"},
            f"the annotations name a100 in {USE} and in {NO}; name it in one of them",
        ),
        (
            {USE: "H100,A10"},
            f"the annotation {USE} has a10, h100; this cluster has a100-pcie-40gb, "
            "a100-sxm4-40gb, nvidia-a100-pcie-40gb, nvidia-a100-sxm4-40gb, "
            "nvidia-a800-40gb-active, nvidia-a800-sxm4-40gb",
        ),
    ],
)
def test_refuses_unknown_types(
    server: ApiServer, annotations: dict[str, str], message: str
) -> None:
    answer = server.dry_run(pod({MEMORY: 1}, annotations=annotations))
    assert answer.refusal == message


@pytest.mark.parametrize(
    ("count", "types", "message"),
    [
        (33, "A100", f"container main-0: {GPU} is 33; 1 to 32 are expected with GPU types"),
        (1, "A100!", f"the annotation {USE} has A100!{_TYPES}"),
        (1, "H200", f"the annotation {USE} has h200; this cluster has a100-pcie-40gb, "),
    ],
)
def test_refuses_whole_gpus_of_unknown_types(
    server: ApiServer, count: int, types: str, message: str
) -> None:
    answer = server.dry_run(pod({GPU: count}, annotations={USE: types}))
    assert answer.refusal.startswith(message)


@pytest.mark.parametrize("limits", [{GPU: 1}, {MEMORY: 8000}, {GPU: 2, MEMORY: 8000}])
def test_refuses_hamis_mig_mode(server: ApiServer, limits: Limits) -> None:
    annotations = {"nvidia.com/vgpu-mode": "mig"}
    assert server.dry_run(pod(limits, annotations=annotations)).refusal == (
        "the annotation nvidia.com/vgpu-mode is mig; request a MIG device by its resource name "
        "instead, such as nvidia.com/mig-1g.5gb"
    )
    # The limiter is what HAMi's own library is.
    annotations = {"nvidia.com/vgpu-mode": "hami-core"}
    assert server.dry_run(pod(limits, annotations=annotations)).refusal == ""


@pytest.mark.parametrize("limits", [{GPU: 1}, {MEMORY: 8000}])
@pytest.mark.parametrize(
    "annotation",
    [f"nvidia.com/{use}-gpu{name}" for name in ("uuid", "indexes") for use in ("use", "nouse")],
)
def test_refuses_gpus_by_uuid_or_index(server: ApiServer, limits: Limits, annotation: str) -> None:
    answer = server.dry_run(pod(limits, annotations={annotation: "GPU-1"}))
    assert answer.refusal == (
        f"the annotation {annotation} is not supported; select the GPU in a ResourceClaim by its "
        f"attribute uuid, or by its model with {USE}"
    )


def test_accepts_hamis_annotations_on_pods_without_gpus(server: ApiServer) -> None:
    annotations = {"nvidia.com/vgpu-mode": "mig", "nvidia.com/use-gpuuuid": "GPU-1"}
    assert server.dry_run(pod({"cpu": 1}, annotations=annotations)).refusal == ""


def test_refuses_a_long_annotation_before_evaluating_it(server: ApiServer) -> None:
    refusal = server.dry_run(pod({MEMORY: 1}, annotations={USE: "A100," * 20_000})).refusal
    assert refusal.endswith("GPU types; 16 at most are possible")


def test_refuses_an_unknown_tenant(server: ApiServer) -> None:
    assert server.dry_run(pod({MEMORY: 1}, namespace="qa")).refusal == (
        "the namespace qa has the label divvy.gpu/tenant: qa; the tenants of this cluster are "
        "dev, prod"
    )


def test_refuses_a_claim_named_like_divvys_own(server: ApiServer) -> None:
    def refusal(name: str) -> str:
        claims = [{"name": name, "resourceClaimName": "mine"}]
        asking = pod({MEMORY: 1}, {"cpu": 1}, initContainers=[init({MEMORY: 2})])
        asking["spec"]["resourceClaims"] = claims
        return server.dry_run(asking).refusal

    for name in ("divvy-c0", "divvy-i2"):
        assert refusal(name) == (
            f"the pod has a claim called {name}, which Divvy reserves for containers that request "
            "GPUs by size; call it by another name"
        )
    for name in ("divvy-c1", "divvy-c9", "divvy-x0", "mine"):
        assert refusal(name) == ""


def foreign(tenant: str, namespace: str) -> str:
    return (
        f"the shares of the tenant {tenant} are for namespaces with the label "
        f"divvy.gpu/tenant: {tenant}, and namespace {namespace} does not have it"
    )


@pytest.mark.parametrize(
    ("template", "namespace", "message"),
    [
        ("divvy-1x10m.tenant.prod", "dev", foreign("prod", "dev")),
        ("divvy-1x10m.use.a100.tenant.prod", "default", foreign("prod", "default")),
        ("divvy-1x10m.tenant.prod", "prod", ""),
        ("divvy-1x10m", "dev", ""),
        ("mine.tenant.prod", "dev", ""),
    ],
)
def test_refuses_a_pod_that_names_another_tenants_template(
    server: ApiServer, template: str, namespace: str, message: str
) -> None:
    claims = [{"name": "x", "resourceClaimTemplateName": template}]
    assert server.dry_run(pod({}, namespace=namespace, resourceClaims=claims)).refusal == message


def test_refuses_another_tenants_class_as_a_resource(server: ApiServer) -> None:
    limits = {"deviceclass.resource.kubernetes.io/divvy-share-prod": 1}
    assert server.dry_run(pod(limits)).refusal == foreign("prod", "default")
    assert server.dry_run(pod(limits, namespace="prod")).refusal == ""
    without = pod({})
    without["spec"]["containers"][0]["resources"] = {"requests": limits}
    assert server.dry_run(without).refusal == foreign("prod", "default")


def claim(device_class: str, *, first_available: bool = False) -> dict[str, Any]:
    """Return the specification of a claim for one device of a class."""
    if not first_available:
        request: dict[str, Any] = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    else:
        chosen = ("divvy-share", device_class)
        alternatives = [
            {"name": f"a{n}", "deviceClassName": device_class}
            for n, device_class in enumerate(chosen)
        ]
        request = {"name": "gpu", "firstAvailable": alternatives}
    return {"devices": {"requests": [request]}}


def made_by_hand(
    server: ApiServer, kind: str, spec: dict[str, Any], namespace: str, **more: str
) -> str:
    """Return what the API server says to a claim, or to a template of one."""
    version = more.get("version", "v1")
    template = kind == "ResourceClaimTemplate"
    body = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": more.get("name", "mine"), "namespace": namespace},
        "spec": {"spec": spec} if template else spec,
    }
    path = _CLAIMS.format(version, namespace, f"{kind.lower()}s")
    account = more.get("account", "")
    return server.send("POST", path, body, dryRun="All", account=account).refusal


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize("first_available", [False, True])
def test_refuses_a_handwritten_claim_of_another_tenants_class(
    server: ApiServer, kind: str, first_available: bool
) -> None:
    spec = claim("divvy-share-prod", first_available=first_available)
    assert made_by_hand(server, kind, spec, "dev") == foreign("prod", "dev")
    assert made_by_hand(server, kind, spec, "default") == foreign("prod", "default")
    assert made_by_hand(server, kind, spec, "prod") == ""
    shared = claim("divvy-share", first_available=first_available)
    assert made_by_hand(server, kind, shared, "dev") == ""


def test_checks_an_older_version_of_the_api_alike(server: ApiServer) -> None:
    served = server.send("GET", "/apis/resource.k8s.io").body["versions"]
    for version in {resource["version"] for resource in served} & {"v1beta2"}:
        refusal = made_by_hand(
            server, "ResourceClaim", claim("divvy-share-prod"), "dev", version=version
        )
        assert refusal == foreign("prod", "dev")


def test_reserves_divvys_names_for_the_template_maker(server: ApiServer) -> None:
    name = "divvy-1x10m"
    refused = (
        f"{name}: names that begin with divvy- are for the templates that Divvy makes; give the "
        "template another name"
    )
    spec, kind = claim("divvy-share"), "ResourceClaimTemplate"
    assert made_by_hand(server, kind, spec, "default", name=name) == refused
    assert made_by_hand(server, kind, spec, "default", name=name, account=MAKER) == ""
    assert made_by_hand(server, kind, spec, "default", name="divers") == ""


@pytest.mark.parametrize(
    ("name", "device_class"),
    [("mine", "divvy-share"), ("divvy-1x10m", "gpu.nvidia.com"), ("divvy-1x10m", "nic.example")],
)
@pytest.mark.parametrize("first_available", [False, True])
def test_holds_the_template_maker_to_its_own_templates(
    server: ApiServer, name: str, device_class: str, first_available: bool
) -> None:
    spec = claim(device_class, first_available=first_available)
    refusal = made_by_hand(
        server, "ResourceClaimTemplate", spec, "default", name=name, account=MAKER
    )
    assert refusal == (
        "the template maker may create and delete only templates whose names and device classes "
        "begin with divvy-"
    )


@pytest.mark.parametrize("finalizers", [[], ["example.com/forever"]])
def test_keeps_the_template_maker_from_holding_up_a_namespace(
    server: ApiServer, finalizers: list[str]
) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "divvy-1x10m", "finalizers": finalizers},
        "spec": {"spec": claim("divvy-share")},
    }
    path = _CLAIMS.format("v1", "default", "resourceclaimtemplates")
    refusal = server.send("POST", path, template, account=MAKER, dryRun="All").refusal
    assert ("without finalizers" in refusal) == bool(finalizers), refusal
    assert bool(refusal) == bool(finalizers)


def test_keeps_the_template_maker_from_deleting_others(server: ApiServer) -> None:
    theirs = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {"spec": claim("gpu.nvidia.com")},
    }
    server.apply(theirs)
    path = f"{_CLAIMS.format('v1', 'default', 'resourceclaimtemplates')}/theirs"
    answer = server.send("DELETE", path, account=MAKER, dryRun="All")
    assert "only templates whose names" in answer.refusal
    assert server.send("DELETE", path).refusal == ""


def test_lets_the_template_maker_delete_what_was_there_before_the_policy(
    server: ApiServer,
) -> None:
    """A template of one of our names that claims another driver's devices."""
    path = f"{_CLAIMS.format('v1', 'default', 'resourceclaimtemplates')}/{EARLIER}"
    assert server.send("GET", path).status == 200
    assert server.send("DELETE", path, account=MAKER, dryRun="All").refusal == ""


def test_refuses_pods_that_name_many_templates(server: ApiServer) -> None:
    def refusal(number: int) -> str:
        claims = [
            {"name": f"a{at}", "resourceClaimTemplateName": f"divvy-1x{at + 1}m"}
            for at in range(number)
        ]
        return server.dry_run(pod({"cpu": 1}, resourceClaims=claims)).refusal

    assert refusal(64) == ""
    assert refusal(65) == "the pod has 65 claims by size; 64 at most are possible"
    assert server.dry_run(pod(*({MEMORY: 1000} for _ in range(65)))).refusal == refusal(65)


def test_refuses_admin_access(server: ApiServer) -> None:
    server.namespace("admin", **{"resource.kubernetes.io/admin-access": "true"})
    spec = claim("divvy-share")
    spec["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        refusal = made_by_hand(server, kind, spec, "admin")
        assert refusal == "Divvy's devices do not offer adminAccess; leave it out"


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"operator": "Exists", "key": "divvy.gpu/unhealthy", "effect": "NoSchedule"},
        {"operator": "Equal", "key": "divvy.gpu/profile-change", "value": "true"},
    ],
)
@pytest.mark.parametrize("first_available", [False, True])
def test_refuses_to_tolerate_our_taints(
    server: ApiServer, toleration: dict[str, str], first_available: bool
) -> None:
    spec = claim("divvy-share", first_available=first_available)
    (request,) = spec["devices"]["requests"]
    exactly = request["firstAvailable"][0] if first_available else request["exactly"]
    exactly["tolerations"] = [toleration]
    assert made_by_hand(server, "ResourceClaim", spec, "default") == (
        "tolerations of taints divvy.gpu/… are not accepted: such a device is failing, or about to "
        "change"
    )
    exactly["tolerations"] = [{"operator": "Exists", "key": "example.com/taint"}]
    assert made_by_hand(server, "ResourceClaim", spec, "default") == ""


def test_refuses_to_tolerate_all_taints_by_a_class_that_has_our_devices(server: ApiServer) -> None:
    """Also of those of NVIDIA's driver: but for what only looks at devices."""
    spec = claim("gpu.nvidia.com")
    exactly = spec["devices"]["requests"][0]["exactly"]
    exactly["tolerations"] = [{"operator": "Exists"}]
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        assert made_by_hand(server, kind, spec, "default") == (
            "tolerations without a key are also of taints divvy.gpu/…: such a device is failing, "
            "or about to change; name the key"
        )
    exactly["adminAccess"] = True
    server.namespace("watching", **{"resource.kubernetes.io/admin-access": "true"})
    assert made_by_hand(server, "ResourceClaim", spec, "watching") == ""
    other = claim("gpu.example.com")
    other["devices"]["requests"][0]["exactly"]["tolerations"] = [{"operator": "Exists"}]
    assert made_by_hand(server, "ResourceClaim", other, "default") == ""


def test_refuses_parameters(server: ApiServer) -> None:
    opaque = {"driver": "divvy.gpu", "parameters": {"apiVersion": "v1", "kind": "GpuConfig"}}
    spec = claim("divvy-share")
    spec["devices"]["config"] = [{"opaque": opaque}]
    assert made_by_hand(server, "ResourceClaim", spec, "default") == (
        "devices.config has parameters for divvy.gpu, which takes none; request memory and cores "
        "as capacity"
    )
    spec["devices"]["config"] = [{"opaque": {**opaque, "driver": "nic.example"}}]
    assert made_by_hand(server, "ResourceClaim", spec, "default") == ""


def test_refuses_the_template_maker_another_tenants_template(server: ApiServer) -> None:
    refusal = made_by_hand(
        *(server, "ResourceClaimTemplate", claim("divvy-share-prod"), "dev"),
        name="divvy-1x10m.tenant.prod",
        account=MAKER,
    )
    assert refusal == foreign("prod", "dev")


def test_checks_a_generated_name_by_its_prefix(server: ApiServer) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"generateName": "divvy-", "namespace": "default"},
        "spec": {"spec": claim("divvy-share")},
    }
    path = _CLAIMS.format("v1", "default", "resourceclaimtemplates")
    assert "names that begin with divvy-" in server.send("POST", path, body, dryRun="All").refusal


@pytest.mark.parametrize("word", ["use", "no"])
def test_refuses_templates_that_the_mutation_would_not_name(server: ApiServer, word: str) -> None:
    """A hand-written name is a selector, whose length costs the API server's processor."""

    def refusal(*types: str) -> str:
        name = f"divvy-1x10m.{word}.{'.'.join(types)}"
        claims = [{"name": "c", "resourceClaimTemplateName": name}]
        return server.dry_run(pod({"cpu": 1}, resourceClaims=claims)).refusal

    assert refusal("a100", "h100") == ""
    assert refusal(*(f"a{number:02}" for number in range(16))) == ""
    for types in (("h100", "a100"), ("a", "a"), tuple(f"a{number:02}" for number in range(17))):
        assert "the GPU types in the name of a template have to be distinct" in refusal(*types)
    both = [{"name": "c", "resourceClaimTemplateName": "divvy-1x10m.use.a.b.no.c.d"}]
    assert server.dry_run(pod({"cpu": 1}, resourceClaims=both)).refusal == ""

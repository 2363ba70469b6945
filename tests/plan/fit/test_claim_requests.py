"""What a pod asks for, from limits, templates and claims."""

from typing import Any

import pytest

from divvy.live.pending_pods import notes_of
from divvy.model.stack import Names
from divvy.plan.fit.claim_requests import Request, requests_of


def _pod(limits: dict | None = None, claims: list | None = None, **status: Any) -> dict:
    container = {"name": "c", "resources": {"limits": limits or {}}}
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u"},
        "spec": {"containers": [container], "resourceClaims": claims or []},
        "status": {"phase": "Pending", **status},
    }


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia.com/gpu": "2", "cpu": "1"}, Request(2, "gpu")),
        ({"nvidia.com/gpu.shared": "1"}, Request(1, "share")),
        ({"nvidia.com/mig-1g.5gb": "3"}, Request(3, "mig", profile="1g.5gb")),
    ],
)
def test_reads_requests_from_extended_resources(limits: dict, expected: Request) -> None:
    assert requests_of(_pod(limits), (), Names()) == (expected,)


def test_reads_requests_under_configured_names() -> None:
    names = Names.model_validate({"gpu": "team.example/gpu"})
    assert requests_of(_pod({"team.example/gpu": "1", "nvidia.com/gpu": "0"}), (), names) == (
        Request(1, "gpu"),
    )


def test_requests_whole_gpus_of_a_type() -> None:
    entry = {"name": "divvy-c0", "resourceClaimTemplateName": "divvy-2x1g.use.a100.no.t4"}
    (request,) = requests_of(_pod(claims=[entry]), (), Names())
    assert request.words == "2 whole GPUs on a100 not on t4"


def test_reads_the_request_from_the_template_and_counts_its_claim_once() -> None:
    entry = {
        "name": "gpu-c0",
        "resourceClaimTemplateName": "divvy-2x3000m-30c.use.a100.tenant.prod",
    }
    pod = _pod(
        claims=[entry],
        resourceClaimStatuses=[{"name": "gpu-c0", "resourceClaimName": "p-gpu-c0-x"}],
    )
    claim = _by_hand({}, "divvy-share-prod")
    claim["metadata"]["name"] = "p-gpu-c0-x"
    (request_of,) = requests_of(pod, [claim], Names())
    assert request_of.words == (
        "2 shares of 3,000 MiB and 30 % of a GPU's time for tenant prod on a100"
    )


def _by_hand(sizes: dict[str, str], device_class: str = "divvy-share") -> dict[str, Any]:
    exact: dict[str, Any] = {"deviceClassName": device_class, "capacity": {"requests": sizes}}
    return {
        "metadata": {"name": "mine", "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exact}]}},
    }


def test_notes_capacities_that_no_device_has() -> None:
    claim = _by_hand({"divvy.gpu/memory": "3000Mi", "cores": "30", "shares": "1"})
    (request,) = requests_of(_pod(), [claim], Names())
    assert request == Request(1, "share", None, None, 30, unknown=("divvy.gpu/memory",), turns=1)


@pytest.mark.parametrize("kind", ["gpu", "mig-1g.5gb"])
def test_counts_capacities_of_any_class(kind: str) -> None:
    claim = _by_hand({"memory": "3Gi", "cores": "30", "shares": "1500m", "x": "1"}, f"divvy-{kind}")
    (request,) = requests_of(_pod(), [claim], Names())
    capacities = (request.memory_mib, request.cores, request.turns, request.unknown)
    assert capacities == (3072, 30, 2, ("x",))


def test_reports_alternatives_and_constraints_as_unread() -> None:
    first, second = ({"name": n, "deviceClassName": f"divvy-{n}"} for n in ("gpu", "share"))
    requests = [{"name": "r", "firstAvailable": [first, second]}]
    constraints = [{"matchAttribute": "divvy.gpu/type"}]
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    claim = {"metadata": {"name": "mine", "namespace": "team"}, "spec": spec}
    (request,) = requests_of(_pod(), [claim], Names())
    assert request.kind == "gpu"
    assert request.unread == ("alternatives (firstAvailable)",)
    assert request.unchecked == ("constraints",)


def test_reads_a_handwritten_claim() -> None:
    claim = _by_hand({"memory": "3000000000", "cores": "30"})
    (request,) = claim["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": "true"}}]
    assert requests_of(_pod(), [claim], Names()) == (
        Request(1, "share", 2862, None, 30, selectors=("true",)),
    )


@pytest.mark.parametrize(
    ("memory", "cores", "expected"),
    [
        ("5n", "5u", (1, 1)),
        ("-1", "-5", (1, 1)),  # the scheduler raises these to the least there is
        ("3000000000u", "1500m", (1, 2)),
        ("3e9", "30e-1", (2862, 3)),
    ],
)
def test_reads_every_quantity_of_a_handwritten_claim(
    memory: str, cores: str, expected: tuple[int, int]
) -> None:
    claim = _by_hand({"memory": memory, "cores": cores})
    assert requests_of(_pod(), [claim], Names()) == (
        Request(1, "share", expected[0], None, expected[1]),
    )


def test_ignores_classes_of_other_drivers() -> None:
    assert requests_of(_pod(), [_by_hand({}, "nic.example.com")], Names()) == ()


def _pod_by_template(**status: Any) -> dict[str, Any]:
    pod = _pod(**status)
    entry = {"name": "divvy-c0", "resourceClaimTemplateName": "divvy-1x10m"}
    pod["spec"]["resourceClaims"] = [entry]
    return pod


def test_names_the_missing_template_of_a_claim() -> None:
    event = {"reason": "FailedResourceClaimCreation", "message": "template not found"}
    assert notes_of(_pod_by_template(), (), [event]) == (
        "its claim has not been created yet: template not found",
    )


def test_forgets_a_missing_template_once_the_claim_exists() -> None:
    event = {"reason": "FailedResourceClaimCreation", "message": "template not found"}
    created = [{"name": "divvy-c0", "resourceClaimName": "pod-divvy-c0-x7"}]
    condition = {"type": "PodScheduled", "status": "False", "message": "no GPU"}
    pod = _pod_by_template(resourceClaimStatuses=created, conditions=[condition])
    assert notes_of(pod, (), [event]) == ("the scheduler says: no GPU",)


def test_reports_a_running_pod_as_not_waiting() -> None:
    assert notes_of(_pod(phase="Running"), (), ()) == ("it is not waiting: its phase is Running",)


def test_reports_the_newest_problem_of_the_node() -> None:
    events = [
        {"reason": "FailedPrepareDynamicResources", "message": "old", "lastTimestamp": "1"},
        {"reason": "FailedPrepareDynamicResources", "message": "new", "lastTimestamp": "2"},
    ]
    pod = _pod()
    pod["spec"]["nodeName"] = "n"
    assert notes_of(pod, (), events)[-1] == "new"


def test_escapes_tenants_text_for_the_terminal() -> None:
    hostile = "\x1b]0;title\x07\x1b[2Jno\n  \u202ewell"
    pod = _pod()
    pod["spec"]["nodeName"] = "node"
    (_, note) = notes_of(pod, (), [{"reason": "Failed", "message": hostile}])
    condition = {"type": "PodScheduled", "status": "False", "message": hostile}
    (waits,) = notes_of(_pod(conditions=[condition]), (), ())
    exactly = {
        "deviceClassName": "divvy-gpu",
        "selectors": [{"cel": {"expression": f'"{hostile}" != ""'}}],
    }
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"exactly": exactly}]}}}
    (request,) = requests_of(_pod(), [claim], Names())
    for text in (note, waits, *request.selectors):
        assert text.isprintable()
        assert "no \ufffdwell" in text

"""A run disturbs no pod, and cleans up after itself and after runs that could not."""

import json
import signal
import subprocess
from typing import Any

import pytest

from tests.conformance.faults import H100
from tests.conformance.scene import Scene

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def metadata(scene: Scene) -> dict[str, Any]:
    return dict(scene.deployed.lab.get("node", H100)["metadata"])


def namespaces(scene: Scene) -> list[str]:
    """Return the namespaces of runs that are not being removed yet."""
    items = scene.deployed.lab.get("namespaces", "--selector=divvy.gpu/conformance=yes")["items"]
    return [
        namespace["metadata"]["name"]
        for namespace in items
        if namespace["status"]["phase"] == "Active"
    ]


def test_leaves_devices_of_others_alone(scene: Scene) -> None:
    lab = scene.deployed.lab
    with lab.namespace() as namespace:
        container = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        selector = {"kubernetes.io/hostname": H100}
        tenant = lab.pod("tenant", "sleep 300", nodeSelector=selector, container=container)
        tenant["metadata"]["namespace"] = namespace
        lab.apply(tenant)
        lab.until(
            lambda: lab.get("pod", "tenant", f"-n={namespace}")["status"]["phase"] == "Running"
        )
        options = (
            "--pool=training",
            "--exclusive",
            "--disruptive",
            "--select=PLUG-03,WORK,DISR-03",
        )
        report = scene.verify(*options, expect=2)
        assert {check["status"] for check in report["checks"]} == {"skipped"}
        reasons = {check["reason"] for check in report["checks"]}
        assert reasons == {
            f"every device is held by {namespace}/tenant",
            f"needs idle GPUs: devices are held by {namespace}/tenant",
        }
        assert lab.get("pod", "tenant", f"-n={namespace}")["status"]["phase"] == "Running"
        # The tests after this one find idle GPUs.
        lab.kubectl("delete", "pod", "tenant", f"-n={namespace}", "--wait=true")


def test_cleans_up_after_a_killed_run(scene: Scene) -> None:
    lab = scene.deployed.lab
    lab.kubectl("label", "node", H100, "divvy.gpu/profile=slice-4")
    lab.kubectl("annotate", "node", H100, "divvy.gpu/conformance-profile=slice-4")
    scene.deployed.until(lambda: scene.deployed.status(H100)["profile"] == "slice-4")
    report = scene.verify("--pool=training", "--select=PLUG-02", expect=0)
    assert {check["status"] for check in report["checks"]} == {"passed"}
    assert f"{H100}: a killed run left it on profile slice-4" in scene.output
    left = metadata(scene)
    assert "divvy.gpu/profile" not in left["labels"]
    assert "divvy.gpu/conformance-profile" not in left["annotations"]


def test_keeps_a_label_of_somebody_else(scene: Scene) -> None:
    lab = scene.deployed.lab
    lab.kubectl("label", "node", H100, "divvy.gpu/profile=whole")
    try:
        report = scene.verify(
            "--pool=training", "--select=NODE-01,DISR-03", "--disruptive", expect=0
        )
        assert [check["status"] for check in report["checks"]] == ["passed", "skipped"]
        assert "has a label divvy.gpu/profile already" in report["checks"][1]["reason"]
        assert metadata(scene)["labels"]["divvy.gpu/profile"] == "whole"
    finally:
        lab.kubectl("label", "node", H100, "divvy.gpu/profile-")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_cleans_up_when_stopped(scene: Scene, how: signal.Signals) -> None:
    command = scene.command("--pool=training", "--select=DISR-03", "--disruptive")
    # A shell's background job ignores Ctrl-C, and its children with it; a terminal's does not.
    heard = ["env", f"--default-signal={how.name.removeprefix('SIG')}", *command]
    with subprocess.Popen(heard, env=scene.environment) as run:
        scene.deployed.until(lambda: "divvy.gpu/profile" in metadata(scene)["labels"], 60)
        assert namespaces(scene)
        run.send_signal(how)
        assert run.wait(60) == 130
    assert "divvy.gpu/profile" not in metadata(scene)["labels"]
    assert "divvy.gpu/conformance-profile" not in metadata(scene)["annotations"]
    assert namespaces(scene) == []
    classes = scene.deployed.lab.get("priorityclasses")["items"]
    assert not [
        device_class
        for device_class in classes
        if device_class["metadata"]["name"].startswith("divvy-")
    ]
    scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)


def test_reports_no_failure_under_a_policy_that_refuses_its_pods(scene: Scene) -> None:
    lab = scene.deployed.lab
    name = "no-usual-pods"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": labels},
        },
        "validations": [{"expression": "false", "message": "not in this cluster"}],
    }
    kinds = {
        "ValidatingAdmissionPolicy": policy,
        "ValidatingAdmissionPolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    group = "admissionregistration.k8s.io/v1"
    lab.apply(
        *(
            {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, spec in kinds.items()
        )
    )
    try:
        with lab.namespace(labels) as namespace:
            tried = lab.pod("tried", "true")
            tried["metadata"]["namespace"] = namespace
            create = ("create", "--dry-run=server", "--filename=-")
            text = json.dumps(tried)
            lab.until(lambda: lab.try_kubectl(*create, stdin=text).returncode != 0)
        report = scene.verify("--pool=training", "--select=ISO-01,ISO-07", expect=0)
    finally:
        for kind in kinds:
            lab.kubectl("delete", kind.lower(), name)
    checks = {check["id"]: check for check in report["checks"]}
    assert checks["ISO-01"]["status"] == "passed"
    assert "not tried by number" in str(checks["ISO-01"]["evidence"])
    assert checks["ISO-07"]["status"] == "skipped"
    assert "not in this cluster" in checks["ISO-07"]["reason"]

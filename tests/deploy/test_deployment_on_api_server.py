"""Divvy's release where things go wrong around it: nothing is left behind, nothing is lost.

On API servers without nodes, with Helm itself: what the agents do is other tests' matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from divvy.deploy.changes import Release
from divvy.deploy.live_objects import create_missing
from divvy.kube.client import Client
from divvy.kube.kubeconfig import cluster_config
from divvy.model import parse_document
from divvy.render.objects.cluster import objects
from lab.cluster.tools import HELM
from tests.bare_cluster import BareCluster
from tests.beside import repeating
from tests.deploy.own_stack import IMAGE, NAMESPACE, OwnStack, left, objects_of, revision_of
from tests.divvy_command import run_divvy
from tests.thoroughness import at_length

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
PLACE = f"--namespace={NAMESPACE}"


def helm(cluster: BareCluster, *arguments: str) -> str:
    command = [str(HELM.bin / "helm"), *arguments, PLACE, f"--kubeconfig={cluster.kubeconfig}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def history(cluster: BareCluster) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(helm(cluster, "history", "divvy", "-o=json"))
    return records


def kill(process: subprocess.Popen[str], *, with_helm: bool) -> None:
    """Kill a run; an earlier Helm of it goes on, unless it is killed, too."""
    if with_helm:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


def test_deploys_and_records_who_deployed_which_file(own: OwnStack, cluster: BareCluster) -> None:
    assert "objects to create, 0 unchanged" in own.run("preview", expect=2)
    assert objects_of(cluster) == set()
    own.up()
    deployed = left(cluster)
    assert {"DaemonSet divvy-agent", f"Namespace {NAMESPACE}"} <= deployed
    (record,) = history(cluster)
    assert record["description"].startswith("divvy up -s own: Pulumi.own.yaml, in no git, by ")
    labels = cluster.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert "unchanged" in own.run("preview")
    assert "unchanged" in own.up()
    assert left(cluster) == deployed


def test_is_found_by_another_clone(own: OwnStack, cluster: BareCluster, tmp_path: Path) -> None:
    own.up()
    colleague = OwnStack(tmp_path / "clone", cluster)
    assert "unchanged" in colleague.run("preview")
    colleague.value["pools"]["research"]["profile"] = "whole"
    assert "1 object to update" in colleague.up()
    assert "1 object to update" in own.run("preview", expect=2)


def test_has_the_admission_policies_before_the_agents(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    agent = cluster.get("daemonset", "divvy-agent", PLACE)["metadata"]["creationTimestamp"]
    for kind in ("validatingadmissionpolicy", "validatingadmissionpolicybinding"):
        policy = cluster.get(kind, f"{NAMESPACE}-divvy-agent")["metadata"]
        assert policy["creationTimestamp"] <= agent
        assert policy["annotations"]["meta.helm.sh/release-name"] == "divvy"


def test_repairs_what_was_edited_and_deleted_by_hand(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    written = cluster.get("configmap", "divvy", PLACE)["data"]
    (key,) = written
    patch = json.dumps({"data": {key: "{}"}})
    cluster.kubectl("patch", "configmap", "divvy", PLACE, f"--patch={patch}",
                    "--field-manager=kubectl-edit")  # fmt: skip
    cluster.kubectl("delete", "clusterrolebinding", f"{NAMESPACE}-divvy-agent")
    shown = own.run("preview", expect=2)
    assert "changed by kubectl-edit" in shown
    assert "1 object to create, 1 object to update" in shown
    own.up()
    assert cluster.get("configmap", "divvy", PLACE)["data"] == written
    own.run("preview")


def test_overwrites_another_managers_field_only_when_asked(
    own: OwnStack, cluster: BareCluster
) -> None:
    own.up()
    patch = json.dumps({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 9}}}})
    cluster.kubectl("patch", "daemonset", "divvy-agent", PLACE, f"--patch={patch}",
                    "--field-manager=tuner")  # fmt: skip
    refused = own.up(expect=1)
    assert "terminationGracePeriodSeconds is owned by tuner" in refused
    assert "--force-conflicts" in refused
    own.up("--force-conflicts")
    own.run("preview")


def test_recreates_a_namespace_that_was_deleted(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    before = left(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE)
    own.value["pools"]["research"]["profile"] = "whole"
    own.run("preview", expect=2)
    own.up()
    assert left(cluster) == before
    own.run("preview")


def let_lease_end(cluster: BareCluster) -> None:
    """Let a killed run's Lease be over in a second: that one waits for it is another test's."""
    patch = json.dumps({"spec": {"leaseDurationSeconds": 1}})
    cluster.try_kubectl("patch", "lease", "divvy-deploy", PLACE, f"--patch={patch}")


@pytest.mark.timeout(14400)
def test_continues_runs_that_were_killed_at_any_instant(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    """Two clones in turn deploy, change and destroy; runs are killed in a row, then one goes on.

    In a fifth of them the API server is killed, too, before the run is or after it.
    """
    seed = int(os.environ.get("DIVVY_RANDOM_SEED", "64"))
    dice = random.Random(seed)
    clones = [own, OwnStack(tmp_path / "clone", cluster)]
    expected: dict[bool, set[str]] = {}
    began = time.monotonic()
    own.up()
    longest, before = time.monotonic() - began, cluster.uid("daemonset", "divvy-agent", NAMESPACE)
    kills = int(os.environ.get("DIVVY_KILLS", at_length(4, 60)))
    for number in range(kills):
        profile, with_claims = dice.choice(("whole", "split", "slice-4")), dice.random() < 0.3
        for clone in clones:
            clone.value["pools"]["research"]["profile"] = profile
            clone.value["profiles"].pop("on-demand-only", None)
            if with_claims:
                clone.value["profiles"]["on-demand-only"] = {"claims": {"mig": ["1g.5gb"]}}
        arguments = dice.choice((("up", "--yes", "--no-wait"),) * 3 + (("destroy", "--yes"),))
        process = dice.choice(clones).start(*arguments)
        seconds = dice.uniform(0.2, longest)
        time.sleep(seconds)
        lost_server = dice.random()
        if lost_server < 0.1:
            cluster.restart_api_server()
        with_helm = dice.random() < 0.85
        kill(process, with_helm=with_helm)
        if lost_server > 0.9:
            cluster.restart_api_server()
        if with_helm:
            let_lease_end(cluster)
        if arguments[0] == "destroy":
            before = None
        scene = f"seed {seed}, run {number}: {arguments[0]} of {seconds:.2f} s"
        print(f"{time.monotonic() - began:.0f} s: {scene}", flush=True)
        if number < kills - 1 and dice.random() < 0.5:
            continue
        if dice.random() < 0.2:
            dice.choice(clones).run("destroy", "--yes")
            assert left(cluster) == set(), scene
            before = None
            continue
        dice.choice(clones).up()
        assert dice.choice(clones).is_current(), scene
        present = objects_of(cluster)
        assert expected.setdefault(with_claims, present) == present, scene
        uid = cluster.uid("daemonset", "divvy-agent", NAMESPACE)
        assert before in (None, uid), scene
        before = uid
    for with_claims, present in expected.items():
        assert ("DeviceClass divvy-mig" in present) is with_claims


def test_leaves_no_policy_of_a_run_of_another_file_that_was_killed_before_helms_record(
    own: OwnStack, cluster: BareCluster
) -> None:
    own.up()
    before = objects_of(cluster)
    own.value["profiles"]["on-demand-only"] = {"claims": {"mig": ["1g.5gb"]}}
    early = [
        obj
        for obj in objects(parse_document(own.value), IMAGE)
        if obj["kind"].startswith("ValidatingAdmissionPolicy")
    ]
    del own.value["profiles"]["on-demand-only"]

    def kill_halfway() -> None:
        with Client(cluster_config(str(cluster.kubeconfig), None)) as client:
            for obj in early:
                create_missing(client, Release("divvy", NAMESPACE), obj)

    kill_halfway()
    left_over = {f"{obj['kind']} {obj['metadata']['name']}" for obj in early} - before
    assert f"{len(left_over)} objects to delete" in own.run("preview", expect=2)
    own.up()
    assert objects_of(cluster) == before
    kill_halfway()
    own.run("destroy", "--yes")
    assert left(cluster) == set()


def test_lets_one_of_two_runs_wait_for_the_other(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    own.value["pools"]["research"]["profile"] = "whole"
    running = [own.start("up", "--yes", "--no-wait") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    own.run("preview")
    assert all(record["status"] in ("deployed", "superseded") for record in history(cluster))


def test_leaves_an_operation_of_helm_alone_that_it_has_not_begun(
    own: OwnStack, cluster: BareCluster
) -> None:
    own.up()
    (record,) = cluster.get("secrets", PLACE, "--selector=owner=helm")["items"]
    secret = revision_of(record, 2, "pending-upgrade", annotations={})
    name = secret["metadata"]["name"]
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(secret))
    own.value["pools"]["research"]["profile"] = "whole"
    refused = own.up(expect=1)
    assert "and not for `divvy up`: wait until it has ended" in refused
    assert f"kubectl delete secret -n {NAMESPACE} {name}" in refused
    cluster.kubectl("delete", "secret", name, PLACE)
    own.up()


def test_goes_on_with_a_release_that_helm_has_installed(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    own.write()
    chart = tmp_path / "chart"
    own.run("chart", f"--out={chart}", f"--image={own.value['plugin']['image']['reference']}")
    helm(cluster, "install", "gpus", str(chart), "--create-namespace",
         "--set=agent.priorityClassName=system-cluster-critical")  # fmt: skip
    shown = own.run("preview", expect=2)
    assert "values set on the release by hand are reset: agent" in shown
    own.up()
    own.run("preview")
    secrets = cluster.get("secrets", PLACE, "--selector=owner=helm")["items"]
    assert {secret["metadata"]["labels"]["name"] for secret in secrets} == {"gpus"}


def test_goes_on_with_the_release_of_a_renamed_stack_when_asked(
    own: OwnStack, cluster: BareCluster
) -> None:
    """Also where nothing else has changed: the release is then another's by its record alone."""
    own.up()
    (own.folder / "Pulumi.own.yaml").rename(own.folder / "Pulumi.new.yaml")
    for command in (("preview",), ("up", "--yes", "--no-wait"), ("destroy", "--yes")):
        refused = run_divvy(*command, "--stack=new", folder=own.folder, expect=1).stderr
        assert f"release divvy in namespace {NAMESPACE} is of stack own, not of new" in refused
    assert "divvy up -s new --take-over" in refused
    flags = ("--take-over", "--stack=new")
    shown = run_divvy("preview", *flags, folder=own.folder, expect=2).stdout
    assert "release divvy becomes stack new's: it is of stack own" in shown
    run_divvy("up", "--yes", "--no-wait", *flags, folder=own.folder)
    assert "unchanged" in run_divvy("preview", "--stack=new", folder=own.folder).stdout
    run_divvy("destroy", "--yes", "--stack=new", folder=own.folder)
    assert left(cluster) == set()


def test_goes_on_after_a_rollback_of_helm(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    own.value["pools"]["research"]["profile"] = "whole"
    own.up()
    helm(cluster, "rollback", "divvy", "1")
    assert "1 object to update" in own.run("preview", expect=2)
    own.up()
    own.run("preview")
    assert [record["status"] for record in history(cluster)] == [*["superseded"] * 3, "deployed"]


def test_goes_on_with_a_release_of_dozens_of_revisions(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    (record,) = cluster.get("secrets", PLACE, "--selector=owner=helm")["items"]
    many = [revision_of(record, number, "superseded") for number in range(2, 60)]
    many.append(revision_of(record, 60, "failed"))
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": many})
    cluster.kubectl("create", "--filename=-", stdin=items)
    assert "revision 60 is failed" in own.run("preview", expect=2)
    own.up()
    assert [record["revision"] for record in history(cluster)][-1] == 61
    assert len(history(cluster)) == 10
    own.run("preview")


def test_takes_over_objects_of_divvy_only_when_asked(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    own.write()
    manifests = tmp_path / "manifests"
    own.run("chart", "--format=manifests", f"--out={manifests}",
            f"--image={own.value['plugin']['image']['reference']}")  # fmt: skip
    cluster.kubectl("apply", "--server-side", f"--filename={manifests}")
    uid = cluster.uid("daemonset", "divvy-agent", NAMESPACE)
    refused = own.up(expect=1)
    assert "this cluster's Divvy was deployed by kubectl" in refused
    assert "take it over with --take-over. Taking over restarts no pod; delete nothing" in refused
    nothing = own.run("destroy", "--yes", expect=1)
    assert "has a Divvy that Helm has not deployed (kubectl)" in nothing
    own.up("--take-over")
    assert cluster.uid("daemonset", "divvy-agent", NAMESPACE) == uid
    own.run("preview")


def test_takes_over_nothing_that_is_not_divvys(own: OwnStack, cluster: BareCluster) -> None:
    cluster.kubectl("create", "clusterrole", f"{NAMESPACE}-divvy-agent", "--verb=get",
                    "--resource=pods")  # fmt: skip
    try:
        for flags in ((), ("--take-over",)):
            refused = own.up(*flags, expect=1)
            assert "is not Divvy's (made by kubectl-create): nothing is taken over" in refused
        assert objects_of(cluster) == set()
    finally:
        cluster.kubectl("delete", "clusterrole", f"{NAMESPACE}-divvy-agent")


def test_leaves_a_namespace_of_somebody_else(own: OwnStack, cluster: BareCluster) -> None:
    cluster.kubectl("create", "namespace", "team")
    own.value["namespace"] = "team"
    try:
        own.up()
        assert "namespace team stays: Divvy has not made it" in own.run("destroy", "--yes")
        cluster.kubectl("label", "namespace", "team", "--overwrite",
                        "pod-security.kubernetes.io/enforce=baseline")  # fmt: skip
        refused = own.up(expect=1)
        assert "is somebody else's and has a Pod Security level that admits no agent" in refused
    finally:
        own.value["namespace"] = NAMESPACE
        cluster.kubectl("delete", "namespace", "team", "--wait=false")


def test_refuses_an_image_that_a_node_cannot_run(own: OwnStack, cluster: BareCluster) -> None:
    image = own.value["plugin"]
    own.value["plugin"] = {"image": {"registry": "registry.example", "base": "registry.example/b"}}
    name, pool = next(iter(own.value["pools"].items()))
    labels = {**pool["select"], "kubernetes.io/arch": "arm64"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gh-0", "labels": labels}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))
    try:
        status = json.dumps({"status": {"nodeInfo": {"architecture": "arm64"}}})
        cluster.kubectl("patch", "node", "gh-0", "--subresource=status", f"--patch={status}")
        for command in (("preview",), ("up", "--yes")):
            output = own.run(*command, expect=1)
            assert f"pools.{name}: nodes gh-0: need an image for linux/arm64" in output
            assert "add linux/arm64 to plugin.image.platforms" in output
        assert objects_of(cluster) == set()
    finally:
        cluster.kubectl("delete", "node", "gh-0")
        own.value["plugin"] = image


def test_refuses_nodes_that_a_divvy_of_another_namespace_serves(
    own: OwnStack, cluster: BareCluster
) -> None:
    pool = next(iter(own.value["pools"].values()))
    node = {"metadata": {"name": "n1", "labels": pool["select"]}, "apiVersion": "v1"}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps({**node, "kind": "Node"}))
    cluster.kubectl("create", "namespace", "first")
    labels = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "agent"}
    agent = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "divvy-agent-x", "namespace": "first", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "agent", "image": "i"}]},
    }
    try:
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(agent))
        for command in (("preview",), ("up", "--yes")):
            refused = own.run(*command, expect=1)
            assert "another Divvy serves nodes that this stack's pools select" in refused
            assert "namespace first: n1" in refused
        assert objects_of(cluster) == set()
    finally:
        cluster.kubectl("delete", "namespace", "first", "--wait=false")
        cluster.kubectl("delete", "node", "n1")
        cluster.kubectl("delete", "pod", "divvy-agent-x", "-n=first", "--force", "--wait=false")


@contextlib.contextmanager
def ready_deployments(cluster: BareCluster) -> Iterator[None]:
    """Report the template maker as ready, as a controller and a kubelet would."""
    place = ("deployment", "divvy-claim-templates", PLACE)

    def say() -> None:
        generation = cluster.try_kubectl("get", *place, "--output=jsonpath={.metadata.generation}")
        replicas = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), 1)
        status = {"observedGeneration": int(generation.stdout or 0), **replicas}
        patch = json.dumps({"status": status})
        cluster.try_kubectl(
            *("patch", *place, "--subresource=status", "--type=merge", f"--patch={patch}")
        )

    with repeating(say, 0.2):
        yield


def hold_claim(cluster: BareCluster) -> None:
    """Let a pod hold a device, as scheduler and kubelet would."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "divvy-gpu"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "held", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(claim))
    result = {"request": "gpu", "driver": "divvy.gpu", "pool": "n/divvy", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "train", "uid": "u"}],
    }
    cluster.kubectl(
        *("patch", "resourceclaim", "held", "--subresource=status", "--type=merge"),
        f"--patch={json.dumps({'status': status})}",
    )


def test_adds_changes_and_removes_claims_of_a_stack(own: OwnStack, cluster: BareCluster) -> None:
    own.up()
    before = objects_of(cluster)
    with ready_deployments(cluster):
        own.value["profiles"]["by-size"] = {"claims": {"shares": {}, "mig": ["1g.5gb"]}}
        own.up()
        added = objects_of(cluster) - before
        assert {
            "DeviceClass divvy-share",
            "DeviceClass divvy-mig-1g.5gb",
            "Deployment divvy-claim-templates",
            "MutatingAdmissionPolicy divvy-sized-limits",
            "ValidatingAdmissionPolicy divvy-gpu-requests",
        } <= added
        # What the API server adds to policies and classes is no difference.
        own.run("preview")
        own.value["profiles"]["by-size"]["claims"] = {"shares": {}, "tenants": ["prod"]}
        own.value["names"] = {"memory": "example.com/vgpu-memory"}
        own.up()
        assert "DeviceClass divvy-share-prod" in left(cluster)
        assert "DeviceClass divvy-mig-1g.5gb" not in left(cluster)
        policy = cluster.get("mutatingadmissionpolicy", "divvy-sized-limits")
        assert "example.com/vgpu-memory" in json.dumps(policy["spec"])
        own.run("preview")
        hold_claim(cluster)
        claims = own.value["profiles"].pop("by-size")
        held = "pods hold claims: default/train; without a profile with `claims` nothing returns"
        assert f"warning: {held}" in own.run("preview", expect=2)
        assert f"error: {held}" in own.up(expect=1)
        assert f"error: {held}" in own.run("destroy", "--yes", expect=1)
        assert "DeviceClass divvy-share-prod" in left(cluster)
        assert claims
    cluster.kubectl("delete", "resourceclaim", "held")
    own.up()
    assert objects_of(cluster) == before


def test_reports_on_every_up_that_a_node_waits_until_it_is_ready(
    own: OwnStack, cluster: BareCluster
) -> None:
    """A pipeline that tries again must not go on, though nothing is left to change."""
    status = {"state": "Waiting", "reason": "held by team/notebook", "gpus": [{}]}
    pool = own.value["pools"]["training"]
    del pool["hardware"]  # what the node advertises is not compared, only what its agent says
    (label,) = pool["select"].items()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(node))

    def say(state: str) -> None:
        text = json.dumps({**status, "state": state})
        cluster.kubectl("annotate", "node", "n1", "--overwrite", f"divvy.gpu/status={text}")

    try:
        cluster.kubectl("label", "node", "n1", "=".join(label))
        say("Waiting")
        own.up()
        again = own.run("up", "--yes", expect=2)
        assert "unchanged" in again
        assert "its agent says Waiting" in again
    finally:
        cluster.kubectl("delete", "node", "n1")


def test_says_that_nothing_is_deployed(own: OwnStack) -> None:
    assert "nothing of Divvy is deployed in https://" in own.run("destroy", "--yes")

"""``divvy up`` and ``destroy`` where the cluster itself works against them."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from divvy.model import parse_document
from divvy.render.objects.cluster import objects
from tests.bare_cluster import VIEWER_TOKEN, BareCluster
from tests.deploy.failing_proxy import failing_proxy
from tests.deploy.hostile_webhook import patching, refusing, silent, webhook
from tests.deploy.own_stack import IMAGE, NAMESPACE, OwnStack, left, objects_of, revision_of
from tests.thoroughness import at_length

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
PLACE = f"--namespace={NAMESPACE}"
GRACE = "/spec/template/spec/terminationGracePeriodSeconds"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusing, "policy forbids divvy-agent"),
        (silent, "failed calling webhook"),
        (None, "failed calling webhook"),
    ],
    ids=["refuses", "times out", "is not served"],
)
def test_a_webhook_that_admits_nothing_is_named_before_anything_changes(
    own: OwnStack, cluster: BareCluster, tmp_path: Path, answer: Any, words: str
) -> None:
    cluster.kubectl("create", "namespace", NAMESPACE)
    with webhook(cluster, tmp_path, answer):
        for command in (("preview",), ("up", "--yes", "--no-wait")):
            refused = own.run(*command, expect=1)
            assert f"the cluster refuses DaemonSet {NAMESPACE}/divvy-agent" in refused
            assert words in refused
    assert left(cluster) == set()
    cluster.kubectl("delete", "namespace", NAMESPACE)


def test_a_webhook_that_stamps_each_request_is_shown_and_stops_nothing(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    numbers = itertools.count()
    own.up()

    def stamp(_: Any) -> dict[str, Any]:
        value = {"op": "add", "path": "/metadata/labels/stamp", "value": str(next(numbers))}
        return patching(value)

    with webhook(cluster, tmp_path, stamp, mutating=True):
        assert "metadata.labels.stamp" in own.run("preview", expect=2)
        own.up()
        own.up()
    own.run("preview", expect=0)


def test_a_webhook_that_overrides_a_field_stops_nothing_when_forced(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    numbers = itertools.count(40)

    def override(_: Any) -> dict[str, Any]:
        return patching({"op": "replace", "path": GRACE, "value": next(numbers)})

    with webhook(cluster, tmp_path, override, mutating=True):
        own.up()
        own.run("preview", expect=2)
        own.up("--force-conflicts")
    own.up("--force-conflicts")
    own.run("preview")


def test_a_destroy_that_a_webhook_stops_goes_on_later(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    own.value["profiles"]["on-demand-only"] = {"claims": {"mig": ["1g.5gb"]}}
    own.up()
    # What only the record names.
    del own.value["profiles"]["on-demand-only"]
    deletes = {"resources": ("deviceclasses", "clusterroles"), "operations": ("DELETE",)}
    with webhook(cluster, tmp_path, refusing, **deletes):  # type: ignore[arg-type]
        refused = own.run("destroy", "--yes", expect=1)
        assert "policy forbids" in refused
    own.run("destroy", "--yes")
    assert left(cluster) == set()


@pytest.mark.timeout(3600)
def test_goes_on_after_requests_that_failed_in_mid_run(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    seed = int(os.environ.get("DIVVY_RANDOM_SEED", "64"))
    dice = random.Random(seed)
    direct = own.value["kubeconfig"]
    for number in range(int(os.environ.get("DIVVY_FAILURES", at_length(2, 40)))):
        own.value["pools"]["research"]["profile"] = dice.choice(("whole", "split", "slice-4"))
        command = dice.choice((("up", "--yes", "--no-wait"),) * 3 + (("destroy", "--yes"),))
        part = dice.choice((0.01, 0.03, 0.1))
        with failing_proxy(cluster, tmp_path, part, dice.randrange(1 << 30)) as (path, failed):
            own.value["kubeconfig"] = str(path)
            process = own.start(*command)
            output, _ = process.communicate(timeout=300)
            own.value["kubeconfig"] = direct
        scene = f"seed {seed}, run {number}: {command[0]} {failed} {output}"
        assert process.returncode in (0, 1), scene
        assert "Traceback" not in output, scene
        if process.returncode:
            assert failed, scene
        if dice.random() < 0.3:
            own.run("destroy", "--yes")
            assert left(cluster) == set(), scene
            continue
        own.up()
        assert "unchanged" in own.run("preview"), scene


LOST = "servicemonitors.monitoring.coreos.com"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": LOST},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.mark.parametrize("with_up", [True, False], ids=["up", "destroy alone"])
def test_goes_on_without_objects_of_a_kind_that_the_cluster_has_lost(
    own: OwnStack, cluster: BareCluster, *, with_up: bool
) -> None:
    """Helm does not: its upgrade and its uninstall end at the first object of such a kind."""
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(CRD))
    cluster.kubectl("wait", "crd", LOST, "--for=condition=Established")
    own.value["observability"] = {"serviceMonitor": True}
    own.up()
    cluster.kubectl("delete", "crd", LOST)
    without = (
        "the cluster has no ServiceMonitor (monitoring.coreos.com/v1) any more: "
        "the release goes on without"
    )
    if with_up:
        refused = own.up(expect=1)
        assert "the cluster has no ServiceMonitor (monitoring.coreos.com/v1)" in refused
        del own.value["observability"]
        assert without in own.up()
        assert "unchanged" in own.run("preview")
        assert without not in own.run("destroy", "--yes")
    else:
        assert without in own.run("destroy", "--yes")
        del own.value["observability"]
    assert left(cluster) == set()


def as_viewer(own: OwnStack, cluster: BareCluster) -> None:
    """Use the kubeconfig of the viewer."""
    text = cluster.kubeconfig.read_text()
    viewer = own.folder / "viewer.yaml"
    viewer.write_text(text.replace("bare-cluster-administrator", VIEWER_TOKEN))
    own.value["kubeconfig"] = str(viewer)


@pytest.mark.parametrize("resource", ["leases", "secrets"])
def test_names_what_a_run_may_not_write_before_it_changes_anything(
    own: OwnStack, cluster: BareCluster, resource: str
) -> None:
    """Objects are not all: a run has its turn, and Helm its records."""
    direct = own.value["kubeconfig"]
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]
    discovered = cluster.kubectl("api-resources", "--output=name", "--verbs=create").split()
    writable = {name.partition(".")[0] for name in discovered} - {resource}
    verbs = ["create", "update", "patch", "delete", "escalate", "bind"]
    rules.append({"apiGroups": ["*"], "resources": sorted(writable), "verbs": verbs})
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "almost"},
        "rules": rules,
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(role))
    cluster.kubectl("create", "clusterrolebinding", "almost", "--clusterrole=almost",
                    "--user=viewer")  # fmt: skip
    try:
        as_viewer(own, cluster)
        for command in (("preview",), ("up", "--yes", "--no-wait")):
            refused = own.run(*command, expect=1)
            assert f"this user may not create {resource} in namespace {NAMESPACE}" in refused
    finally:
        own.value["kubeconfig"] = direct
        cluster.kubectl("delete", "clusterrolebinding/almost", "clusterrole/almost")
    assert objects_of(cluster) == set()


def test_takes_nothing_from_a_divvy_of_another_namespace(
    own: OwnStack, cluster: BareCluster, tmp_path: Path
) -> None:
    own.value["profiles"]["on-demand-only"] = {"claims": {"mig": ["1g.5gb"]}}
    own.up()
    second = OwnStack(tmp_path / "second", cluster)
    second.value["profiles"]["on-demand-only"] = {"claims": {"mig": ["1g.5gb"]}}
    second.value["namespace"] = "second"
    for flags in ((), ("--take-over",)):
        refused = second.up(*flags, expect=1)
        belongs = f"DeviceClass divvy-mig belongs to Helm's release divvy in namespace {NAMESPACE}"
        assert f"{belongs}: nothing is taken over" in refused


def test_settles_a_record_that_a_run_left_after_it_had_applied_all(
    own: OwnStack, cluster: BareCluster
) -> None:
    own.up()
    (record,) = cluster.get("secrets", PLACE, "--selector=owner=helm")["items"]
    secret = json.dumps(revision_of(record, 2, "pending-upgrade"))
    cluster.kubectl("create", "--filename=-", stdin=secret)
    assert "revision 2 is pending-upgrade" in own.run("preview", expect=2)
    own.up()
    own.run("preview")


def test_another_engine_meets_no_conflict_with_a_releases_fields(
    own: OwnStack, cluster: BareCluster
) -> None:
    """As Pulumi applies them: of two that apply the same value, neither overwrites the other."""
    own.value["profiles"]["by-size"] = {"claims": {"shares": {}, "mig": ["1g.5gb"]}}
    applied = objects(parse_document(own.value), IMAGE)
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": applied})
    command = ("apply", "--server-side", "--filename=-")
    cluster.kubectl(*command, "--field-manager=helm", stdin=items)
    try:
        cluster.kubectl(*command, "--field-manager=pulumi-x", "--dry-run=server", stdin=items)
    finally:
        cluster.kubectl("delete", "--filename=-", stdin=items)
        del own.value["profiles"]["by-size"]

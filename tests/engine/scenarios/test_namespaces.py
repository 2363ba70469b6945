"""Namespaces deleted outside, or on their way out."""

from __future__ import annotations

import json

import pytest

from tests.engine.scenario import scenario
from tests.engine.trial import Trial

NAMESPACE = """p = k8s.Provider("p", kubeconfig=E("KUBECONFIG"), enable_config_map_mutable=True)
n = k8s.core.v1.Namespace("n", metadata={"name": E("N")}, opts=R(provider=p))
cm("c", metadata={"name": "c", "namespace": n.metadata["name"]}, data={"x": E("X", "1")},
   opts=R(provider=p))
"""


@scenario(
    "Namespace deleted outside, and an object in it changed",
    "`up` fails until `--refresh`",
    "other",
    "`preview` shows it, `up` makes both again",
)
def test_recreates_a_namespace_deleted_outside(trial: Trial) -> None:
    trial.write(NAMESPACE)
    name = f"{trial.namespace}-n"
    trial.up(N=name)
    trial.cluster.kubectl("delete", "namespace", name)
    assert "2 to create" in trial.preview(N=name, X="2", expect=2)
    trial.up(N=name, X="2")
    assert trial.cluster.names("configmaps", name) == {"c"}
    trial.destroy(N=name)


@scenario(
    "Namespace Terminating",
    "same",
    "refused",
    "the finalizer that it waits for is named",
)
def test_does_not_report_a_terminating_namespace_as_unchanged(trial: Trial) -> None:
    trial.write(NAMESPACE)
    name = f"{trial.namespace}-n"
    trial.up(N=name)
    place = f"--namespace={name}"
    held = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
    trial.cluster.kubectl("patch", "configmap", "c", place, f"--patch={held}", "--type=merge")
    trial.cluster.kubectl("delete", "namespace", name, "--wait=false")
    assert "is being deleted" in trial.preview(N=name, expect=1)
    free = json.dumps({"metadata": {"finalizers": None}})
    trial.cluster.kubectl("patch", "configmap", "c", place, f"--patch={free}", "--type=merge")
    trial.cluster.kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=60s")
    trial.up(N=name)
    trial.destroy(N=name)


@pytest.mark.lab
def test_waits_for_a_terminating_namespace_in_a_destroy(
    trial: Trial,
) -> None:
    trial.write(
        NAMESPACE.replace("opts=R(", 'opts=R(custom_timeouts=CustomTimeouts(delete="1s"), ')
    )
    name = f"{trial.namespace}-n"
    trial.up(N=name)
    place = f"--namespace={name}"
    trial.cluster.kubectl("create", "configmap", "held", place)
    held = json.dumps({"metadata": {"finalizers": ["example.com/hold"]}})
    trial.cluster.kubectl("patch", "configmap", "held", place, f"--patch={held}", "--type=merge")
    trial.cluster.kubectl("delete", "namespace", name, "--wait=false")
    assert "is not gone after 1 s" in trial.destroy(expect=1)
    assert set(trial.resources()) == {"n"}
    free = json.dumps({"metadata": {"finalizers": None}})
    trial.cluster.kubectl("patch", "configmap", "held", place, f"--patch={free}", "--type=merge")
    trial.cluster.kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=60s")
    trial.destroy()
    assert not trial.resources()

"""Which cluster a provider reaches, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.bare_cluster import VIEWER_TOKEN, BareCluster
from tests.engine.scenario import scenario
from tests.engine.trial import Trial

CLUSTERS = """p = k8s.Provider("p", kubeconfig=open(E("KC")).read() if E("CONTENT") else E("KC"))
O = R(provider=p)
a = cm("a", metadata={"name": "a", "namespace": "default"}, data={"x": E("X", "1")}, opts=O)
cm("b", metadata={"name": "b", "namespace": "default"}, data={"x": a.metadata["name"]}, opts=O)
"""


@pytest.mark.parametrize("content", ["1", ""])
@scenario(
    "A provider's kubeconfig leads to another cluster, or a resource gets such a provider",
    "replaced, the old ones deleted through the old provider",
    "refused",
    "the sentence names both servers",
)
def test_refuses_another_cluster(trial: Trial, other_cluster: BareCluster, content: str) -> None:
    trial.write(CLUSTERS)
    here, there = (str(trial.kubeconfig_of(target)) for target in (trial.cluster, other_cluster))
    trial.up(KC=here, CONTENT=content)
    uid = trial.cluster.uid("configmap", "a", "default")
    for output in (
        trial.preview(KC=there, CONTENT=content, expect=1),
        trial.up(KC=there, CONTENT=content, X="2", expect=1),
    ):
        assert "leads to another cluster" in output
        assert other_cluster.server in output
        assert trial.cluster.server in output
    trial.write(CLUSTERS.replace('Provider("p"', 'Provider("q"'))
    assert "in another cluster" in trial.up(KC=there, CONTENT=content, expect=1)
    assert trial.cluster.uid("configmap", "a", "default") == uid
    assert other_cluster.names("configmaps", "default") == set()
    trial.destroy()
    assert trial.cluster.names("configmaps", "default") == set()


@pytest.mark.lab
def test_accepts_another_kubeconfig_of_the_same_cluster(trial: Trial, tmp_path: Path) -> None:
    trial.write(CLUSTERS)
    here = trial.kubeconfig_of(trial.cluster)
    trial.up(KC=str(here))
    uid = trial.cluster.uid("configmap", "a", "default")
    other = tmp_path / "other.kubeconfig"
    other.write_text(here.read_text())
    trial.up(KC=str(other))
    trial.write(CLUSTERS.replace('Provider("p"', 'Provider("q"'))
    trial.up(KC=str(other))
    assert trial.cluster.uid("configmap", "a", "default") == uid
    trial.destroy()


READS_CONFIG_MAPS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
"""


@pytest.fixture
def viewer(trial: Trial, tmp_path: Path) -> Path:
    """Return the kubeconfig of a user who may read the trial's objects and no more."""
    trial.cluster.kubectl("apply", "--server-side", "--filename=-", stdin=READS_CONFIG_MAPS)
    document = yaml.safe_load(Path(trial.environment["KUBECONFIG"]).read_text())
    document["users"][0]["user"] = {"token": VIEWER_TOKEN}
    path = tmp_path / "viewer.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def _without_times(trial: Trial) -> list[dict[str, Any]]:
    times = {"created", "modified"}
    return [
        {key: value for key, value in resource.items() if key not in times}
        for resource in trial.latest()["resources"]
    ]


OWN_PROVIDER = """cm("a", metadata={"name": "a"}, data={"x": E("X", "1")},
   opts=R(provider=k8s.Provider("p")))
"""


@pytest.mark.parametrize("data", ["1", "2"])
@scenario(
    "`up` with the kubeconfig of a user who may not change the stack's objects",
    "the state's provider is that user's from then on",
    "refused",
    "before anything is recorded; the sentence names the user, the server and the right",
)
def test_refuses_a_user_without_rights_and_keeps_the_recorded_identity(
    trial: Trial, viewer: Path, data: str
) -> None:
    trial.write(OWN_PROVIDER)
    assert f"as administrator on {trial.cluster.server}" in trial.up()
    before = _without_times(trial)
    output = trial.up(KUBECONFIG=str(viewer), X=data, expect=1)
    assert f"viewer on {trial.cluster.server} may not patch configmaps" in output
    assert _without_times(trial) == before
    assert f"as administrator on {trial.cluster.server}" in trial.destroy(KUBECONFIG=str(viewer))
    assert trial.names() == set()


@pytest.mark.lab
def test_refuses_a_new_provider_of_a_user_without_rights(trial: Trial, viewer: Path) -> None:
    trial.write(OWN_PROVIDER)
    trial.up()
    provider = trial.resources()["a"]["provider"]
    trial.write(OWN_PROVIDER.replace('Provider("p")', 'Provider("q")'))
    output = trial.up(KUBECONFIG=str(viewer), expect=1)
    assert "may not patch configmaps" in output
    assert trial.resources()["a"]["provider"] == provider
    trial.up()
    trial.destroy()
    assert trial.names() == set()


@pytest.mark.lab
def test_keeps_the_guard_against_another_cluster_when_a_user_may_not_see_its_uid(
    trial: Trial, viewer: Path
) -> None:
    trial.write(OWN_PROVIDER)
    trial.up()
    administrator = Path(trial.environment["KUBECONFIG"])
    before = administrator.read_text()
    administrator.write_text(viewer.read_text())
    assert f"as viewer on {trial.cluster.server}" in trial.up()
    administrator.write_text(before)
    (provider,) = (
        resource for resource in trial.latest()["resources"] if resource["urn"].endswith("::p")
    )
    assert provider["divvyCluster"]["uid"] == trial.cluster.uid("namespace", "kube-system", "")


@pytest.mark.lab
def test_refuses_another_cluster_than_a_state_of_version_0_2_names(
    trial: Trial, other_cluster: BareCluster
) -> None:
    trial.write(OWN_PROVIDER)
    trial.up()
    document = json.loads(trial.checkpoint.read_text())
    for resource in document["checkpoint"]["latest"]["resources"]:
        if "divvyCluster" in resource:
            resource["outputs"]["__cluster"] = resource.pop("divvyCluster")
    trial.checkpoint.write_text(json.dumps(document))
    kubeconfig = Path(trial.environment["KUBECONFIG"])
    before = kubeconfig.read_text()
    kubeconfig.write_text(other_cluster.kubeconfig.read_text())
    assert "leads to another cluster" in trial.up(expect=1)
    kubeconfig.write_text(before)
    trial.up()
    (provider,) = (
        resource for resource in trial.latest()["resources"] if resource["urn"].endswith("::p")
    )
    assert "__cluster" not in provider["outputs"]
    assert provider["divvyCluster"]["server"] == trial.cluster.server


@pytest.mark.lab
def test_keeps_the_recorded_identity_when_the_run_fails(trial: Trial, tmp_path: Path) -> None:
    trial.write(OWN_PROVIDER + 'if E("BAD"): cm("b", metadata={"name": "Bad_Name"})\n')
    trial.up()
    before = [
        resource for resource in trial.latest()["resources"] if resource["urn"].endswith("::p")
    ]
    other = tmp_path / "other.kubeconfig"
    other.write_text(Path(trial.environment["KUBECONFIG"]).read_text())
    trial.up(KUBECONFIG=str(other), BAD="1", expect=1)
    after = [
        resource for resource in trial.latest()["resources"] if resource["urn"].endswith("::p")
    ]
    assert [resource["inputs"] for resource in after] == [resource["inputs"] for resource in before]
    trial.up(KUBECONFIG=str(other))
    (after,) = (
        resource for resource in trial.latest()["resources"] if resource["urn"].endswith("::p")
    )
    assert after["inputs"]["kubeconfig"] == str(other)


@scenario(
    "`KUBECONFIG` of the default provider, or a kubeconfig file's content, leads elsewhere now",
    "not noticed; objects are orphaned",
    "refused",
    "the sentence names both servers",
)
def test_refuses_another_cluster_behind_the_same_address(
    trial: Trial, other_cluster: BareCluster
) -> None:
    trial.write('cm("a", metadata={"name": "a"}, data={"x": E("X", "1")})\n')
    trial.up()
    uid = trial.uid("a")
    other_cluster.try_kubectl("create", "namespace", trial.namespace)
    elsewhere = str(trial.kubeconfig_of(other_cluster))
    for operation in ("preview", "up", "refresh", "destroy"):
        output = getattr(trial, operation)(KUBECONFIG=elsewhere, X="2", expect=1)
        assert "another cluster" in output, operation
        assert other_cluster.server in output
    assert trial.uid("a") == uid
    assert other_cluster.names("configmaps", trial.namespace) == set()
    trial.destroy()
    assert trial.names() == set()


@scenario(
    "`kubernetes:kubeconfig` and `kubernetes:namespace` in the stack's configuration",
    "configure the default provider",
    "equal",
)
def test_configures_the_default_provider_by_the_stack(
    trial: Trial, other_cluster: BareCluster
) -> None:
    trial.write('cm("a", metadata={"name": "configured"}, data={"x": "1"})\n')
    kubeconfig = trial.kubeconfig_of(other_cluster, "default")
    config = {"kubernetes:kubeconfig": str(kubeconfig), "kubernetes:namespace": "kube-public"}
    trial.configure(yaml.safe_dump({"config": config}))
    trial.up()
    assert "configured" in other_cluster.names("configmaps", "kube-public")
    assert trial.names() == set()
    trial.destroy()
    assert "configured" not in other_cluster.names("configmaps", "kube-public")


@scenario("`KUBECONFIG=a:b`", "merged", "equal")
def test_merges_kubeconfigs_of_a_list(trial: Trial, tmp_path: Path) -> None:
    document = yaml.safe_load(Path(trial.environment["KUBECONFIG"]).read_text())
    users = tmp_path / "users"
    users.write_text(yaml.safe_dump({"users": document.pop("users")}))
    rest = tmp_path / "rest"
    rest.write_text(yaml.safe_dump(document))
    trial.write('cm("a", metadata={"name": "a"})\n')
    trial.up(KUBECONFIG=f"{users}:{rest}")
    assert trial.names() == {"a"}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("user", "as"),
        ("user", "auth-provider"),
        ("cluster", "proxy-url"),
        ("cluster", "tls-server-name"),
    ],
)
@scenario(
    "A kubeconfig with impersonation, a proxy, a TLS server name or an auth provider",
    "honoured",
    "refused",
    "the key is named",
)
def test_refuses_unsupported_kubeconfig_entries(
    trial: Trial, tmp_path: Path, kind: str, key: str
) -> None:
    document = yaml.safe_load(Path(trial.environment["KUBECONFIG"]).read_text())
    document[f"{kind}s"][0][kind][key] = "nobody"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    trial.write('cm("a", metadata={"name": "a"})\n')
    assert f"{key} is not supported" in trial.up(KUBECONFIG=str(path), expect=1)
    assert trial.names() == set()


@scenario("A credential plugin (`exec`, v1) that is missing", "fails with its name", "equal")
def test_names_a_missing_credential_plugin(trial: Trial, tmp_path: Path) -> None:
    document = yaml.safe_load(Path(trial.environment["KUBECONFIG"]).read_text())
    token = document["users"][0]["user"]["token"]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    path = tmp_path / "kubeconfig"
    trial.write('cm("a", metadata={"name": "a"})\n')
    document["users"][0]["user"] = {"exec": {**plugin, "command": "no-such-plugin"}}
    path.write_text(yaml.safe_dump(document))
    assert "no-such-plugin" in trial.up(KUBECONFIG=str(path), expect=1)
    answer = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential"}
    answer["status"] = {"token": token}  # type: ignore[assignment]
    command = {"command": "echo", "args": [json.dumps(answer)]}
    document["users"][0]["user"] = {"exec": {**plugin, **command}}
    path.write_text(yaml.safe_dump(document))
    trial.up(KUBECONFIG=str(path))
    assert trial.names() == {"a"}

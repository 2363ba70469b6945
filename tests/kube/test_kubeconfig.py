"""Which cluster a kubeconfig means, and as whom; without a cluster."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from divvy.kube import kubeconfig as module
from divvy.kube.client import Client
from divvy.kube.errors import KubeconfigError
from divvy.kube.kubeconfig import ClusterConfig, cluster_config
from lab.cluster.certificates import create_authority


def document(server: str, **user: Any) -> dict[str, Any]:
    return {
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look like a pod with a service account."""
    account = tmp_path / "account"
    account.mkdir()
    for name, text in (("token", "t"), ("namespace", "n"), ("ca.crt", "c")):
        (account / name).write_text(text)
    monkeypatch.setattr(module, "_ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("pod")
def test_tries_the_service_account_last_in_a_pod(tmp_path: Path) -> None:
    assert cluster_config(None, None, {}).server == "https://10.0.0.1:443"
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube/config", document("https://home:1"))
    assert cluster_config(None, None, {}).server == "https://home:1"
    named = written(tmp_path / "named", document("https://named:1"))
    assert cluster_config(None, None, {"KUBECONFIG": named}).server == "https://named:1"


def test_distinguishes_content_from_a_path(tmp_path: Path) -> None:
    text = yaml.safe_dump(document("https://here:1"), sort_keys=False)
    assert text.startswith("kind:")
    assert cluster_config(text, None, {}).server == "https://here:1"
    path = written(tmp_path / "config", document("https://there:1"))
    assert cluster_config(path, None, {}).server == "https://there:1"


def test_reads_a_context_without_user_as_without_credentials() -> None:
    content = document("https://here:1")
    del content["contexts"][0]["context"]["user"]
    with Client(cluster_config(yaml.safe_dump(content), None, {}), seconds=1) as client:
        assert client.server == "https://here:1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**document("https://here:1"), "current-context": ""}, "has no current context"),
        ({**document("https://here:1"), "users": []}, "has no user u"),
        ({**document("https://here:1"), "clusters": []}, "has no cluster c; it has none"),
        (document(""), "its cluster has no server"),
        (document("here:6443"), "its server here:6443 is not an http or https URL"),
        (document("https://here:port"), "is not an http or https URL"),
        (document("https://[::1"), "is not an http or https URL"),
        (document("https://"), "is not an http or https URL"),
    ],
)
def test_names_what_a_kubeconfig_lacks(content: dict[str, Any], words: str) -> None:
    with pytest.raises(KubeconfigError, match=words):
        cluster_config(yaml.safe_dump(content), None, {})


def test_refuses_a_credential_plugin_of_an_old_version() -> None:
    old = {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}
    with pytest.raises(KubeconfigError, match="v1alpha1 is not supported"):
        cluster_config(yaml.safe_dump(document("https://here:1", exec=old)), None, {})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_reads_kubeconfigs_as_windows_writes_them(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(yaml.safe_dump(document("https://here:1")).encode(encoding))
    assert cluster_config(str(path), None, {}).server == "https://here:1"


def test_reports_a_kubeconfig_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes("# Müller\n".encode("latin-1"))
    with pytest.raises(KubeconfigError, match=f"{path} is not YAML"):
        cluster_config(str(path), None, {})


@pytest.mark.parametrize("value", ["hunter22: x", "@hunter22", "!hunter22 x", "*hunter22"])
def test_keeps_a_credential_that_is_not_yaml_out_of_the_error(tmp_path: Path, value: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"users:\n- name: u\n  user:\n    token: {value}\n")
    with pytest.raises(KubeconfigError) as refused:
        cluster_config(str(path), None, {})
    assert str(refused.value) == f"{path} is not YAML (line 4): put text in quotes"


def test_reports_a_kubeconfig_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("[" * 5000)
    with pytest.raises(KubeconfigError, match="is not YAML"):
        cluster_config(str(path), None, {})


def test_skips_kubeconfigs_that_are_missing_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    named = written(tmp_path / "named", document("https://named:1"))
    listed = f"{tmp_path / 'empty'}:{tmp_path / 'none'}:{named}"
    assert cluster_config(None, None, {"KUBECONFIG": listed}).server == "https://named:1"


def test_reports_a_kubeconfig_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KubeconfigError, match="Is a directory"):
        cluster_config(None, None, {"KUBECONFIG": str(tmp_path)})
    monkeypatch.setenv("HOME", f"/{'x' * 300}")
    with pytest.raises(KubeconfigError, match="File name too long"):
        cluster_config(None, None, {})


@pytest.mark.usefixtures("pod")
def test_finds_the_service_account_of_a_user_without_a_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HOME")

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert cluster_config(None, None, {}).server == "https://10.0.0.1:443"


def test_finds_a_credential_plugin_beside_its_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "client.authentication.k8s.io/v1"
    monkeypatch.chdir(tmp_path)
    for command, expected in (("./x", str(tmp_path / "x")), ("x", "x")):
        plugin = {"apiVersion": version, "command": command}
        written(tmp_path / "config", document("https://here:1", exec=plugin))
        assert cluster_config("config", None, {}).user["exec"]["command"] == expected


def data(path: Path) -> str:
    """Return a file as base64 of several lines, as ``base64`` prints it."""
    return base64.encodebytes(path.read_bytes()).decode()


def test_reads_certificates_whose_base64_has_several_lines(tmp_path: Path) -> None:
    create_authority(tmp_path).issue(tmp_path, "client", "me")
    user = {f"client-{name}-data": data(tmp_path / f"client.{end}")
            for name, end in (("certificate", "crt"), ("key", "key"))}  # fmt: skip
    cluster = {"certificate-authority-data": data(tmp_path / "ca.crt")}
    assert ClusterConfig("https://here:1", cluster=cluster, user=user).tls().get_ca_certs()


def test_reads_authorities_beside_comments_of_any_language(tmp_path: Path) -> None:
    create_authority(tmp_path)
    file = tmp_path / "commented.crt"
    file.write_text(f"# Für Müller\n{(tmp_path / 'ca.crt').read_text()}", encoding="utf-8")
    for cluster in (
        {"certificate-authority-data": data(file)},
        {"certificate-authority": str(file)},
    ):
        assert len(ClusterConfig("https://here:1", cluster=cluster).tls().get_ca_certs()) == 1


def test_prefers_the_authority_in_the_kubeconfig_to_the_one_in_a_file(tmp_path: Path) -> None:
    create_authority(tmp_path)
    cluster = {
        "certificate-authority": str(tmp_path / "none.crt"),
        "certificate-authority-data": data(tmp_path / "ca.crt"),
    }
    assert len(ClusterConfig("https://here:1", cluster=cluster).tls().get_ca_certs()) == 1


def test_trusts_authorities_as_kubectl_does(tmp_path: Path) -> None:
    create_authority(tmp_path)
    cluster = {"certificate-authority": str(tmp_path / "ca.crt")}
    for config in (ClusterConfig("https://x", cluster=cluster), ClusterConfig("https://x")):
        flags = config.tls().verify_flags
        assert flags & ssl.VERIFY_X509_PARTIAL_CHAIN  # an authority that is not a root
        assert not flags & ssl.VERIFY_X509_STRICT


def test_refuses_an_encrypted_key_instead_of_asking_for_its_password(tmp_path: Path) -> None:
    create_authority(tmp_path).issue(tmp_path, "client", "me")
    path = tmp_path / "client.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    pkcs8 = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, encryption))
    user = {"client-certificate": str(tmp_path / "client.crt"), "client-key": str(path)}
    with pytest.raises(KubeconfigError, match="an encrypted client-key is not supported"):
        ClusterConfig("https://here:1", user=user).tls()


def test_sends_no_credentials_in_the_clear() -> None:
    for server, user in (("http://here:1", {}), ("https://here:1", {"token": "t"})):
        text = yaml.safe_dump(document(server, token="t"))
        assert cluster_config(text, None, {}).user == user


def test_verifies_unless_told_not_to_by_a_truth_value() -> None:
    for insecure, mode in ((True, ssl.CERT_NONE), (False, ssl.CERT_REQUIRED)):
        cluster = {"insecure-skip-tls-verify": insecure}
        assert ClusterConfig("https://here:1", cluster=cluster).tls().verify_mode == mode
    with pytest.raises(KubeconfigError, match="neither true nor false"):
        ClusterConfig("https://here:1", cluster={"insecure-skip-tls-verify": "false"}).tls()


def test_reads_a_context_that_looks_like_a_date_as_kubectl_does(tmp_path: Path) -> None:
    path = tmp_path / "config"
    text = yaml.safe_dump(document("https://here:1"))
    path.write_text(text.replace("name: x\n", "name: 2024-01-03\n"))
    assert cluster_config(str(path), "2024-01-03", {}).server == "https://here:1"

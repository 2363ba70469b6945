"""How the agent finds its API server: as a pod, and by a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from divvy.kube.access import access_from
from divvy.kube.errors import KubeconfigError
from lab.cluster.certificates import create_authority
from lab.fakes.kubeconfig import write_kubeconfig

POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, str]:
    server = cluster.pop("server")
    return {"KUBECONFIG": str(write_kubeconfig(folder / "config", server, user, **cluster))}


def authority(folder: Path) -> Path:
    create_authority(folder).issue(folder, "client", "me")
    return next(folder.glob("ca*.crt"))


def test_uses_the_service_account_in_a_pod(tmp_path: Path) -> None:
    authority(tmp_path).rename(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("one\n")
    access = access_from(POD, tmp_path)
    assert (access.host, access.port, access.bearer()) == ("fd00::1", 443, "one")
    tls = access.context()
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    # Of no other authority than the cluster's.
    assert len(tls.get_ca_certs()) == 1
    (tmp_path / "token").write_text("two\n")
    assert access.bearer() == "two"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], dict[str, str]]:
    def place(variables: dict[str, str]) -> dict[str, str]:
        for name in POD:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return place


Place = Callable[[dict[str, str]], dict[str, str]]


def test_reads_a_plaintext_server_from_a_kubeconfig(tmp_path: Path, environment: Place) -> None:
    variables = kubeconfig(tmp_path, {"server": "http://127.0.0.1:81/k8s/"}, {"token": "secret"})
    access = access_from({**POD, **environment(variables)}, tmp_path / "no-account")
    assert (access.host, access.port, access.path) == ("127.0.0.1", 81, "/k8s")
    assert (access.tls, access.bearer()) == (None, "")  # it is not sent in the clear


def test_reads_certificates_from_files_or_the_kubeconfig(
    tmp_path: Path, environment: Place
) -> None:
    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    ca, certificate = authority(tmp_path), tmp_path / "client.crt"
    files = {"client-certificate": "client.crt", "client-key": str(tmp_path / "client.key")}
    texts = {
        "client-certificate-data": data(certificate),
        "client-key-data": data(tmp_path / "client.key"),
    }
    for of_server, user in (
        ({"certificate-authority": ca.name}, files),
        ({"certificate-authority-data": data(ca)}, texts),
    ):
        variables = kubeconfig(tmp_path, {"server": "https://api", **of_server}, user)
        access = access_from(environment(variables))
        assert access.port == 443
        assert access.tls is not None
        assert len(access.tls.get_ca_certs()) == 1
        assert access.tls.check_hostname


def test_reads_a_token_from_the_kubeconfig_or_a_file_beside_it(
    tmp_path: Path, environment: Place
) -> None:
    (tmp_path / "token").write_text("t\n")
    for user in ({"token": "t\n"}, {"tokenFile": "token"}, {"tokenFile": str(tmp_path / "token")}):
        environment(kubeconfig(tmp_path, {"server": "https://api"}, user))
        assert access_from(os.environ).bearer() == "t"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no current context"),
        ("[]", "config is not a kubeconfig"),
        ("hello", "config is not a kubeconfig"),
        ("a: [", "config is not YAML"),
        ('{"clusters": null}', "has no current context"),
        ('{"current-context": "x", "contexts": ["x"]}', "the kubeconfig is malformed"),
    ],
)
def test_reports_a_file_that_is_no_kubeconfig(
    tmp_path: Path, environment: Place, text: str, words: str
) -> None:
    (tmp_path / "config").write_text(text)
    environment({"KUBECONFIG": str(tmp_path / "config")})
    with pytest.raises(KubeconfigError, match=words):
        access_from(os.environ)


@pytest.mark.parametrize("server", ["api", "localhost:8080", "https://", "ftp://api"])
def test_reports_a_server_that_is_no_url(tmp_path: Path, environment: Place, server: str) -> None:
    environment(kubeconfig(tmp_path, {"server": server}, {"token": "t"}))
    with pytest.raises(KubeconfigError, match="http or https"):
        access_from(os.environ)


def test_reports_a_certificate_without_its_key(tmp_path: Path, environment: Place) -> None:
    user = {"client-certificate": "client.crt"}
    environment(kubeconfig(tmp_path, {"server": "https://api"}, user))
    with pytest.raises(
        KubeconfigError, match="client-certificate and client-key are expected together"
    ):
        access_from(os.environ)


def test_reports_unsupported_kubeconfig_entries(tmp_path: Path, environment: Place) -> None:
    user = {"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1"}}
    environment(kubeconfig(tmp_path, {"server": "https://api"}, user))
    with pytest.raises(KubeconfigError, match="users with exec are not supported"):
        access_from(os.environ)
    environment({"KUBECONFIG": str(tmp_path / "none")})
    with pytest.raises(KubeconfigError, match="none: no such file"):
        access_from(os.environ)
    (tmp_path / "ca.crt").touch()
    (tmp_path / "token").touch()
    with pytest.raises(KubeconfigError, match="the service account cannot be used"):
        access_from(POD, tmp_path)

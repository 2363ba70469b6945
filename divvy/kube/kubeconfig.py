"""Reads kubeconfigs as kubectl does: cluster and user, the same for every command.

What Divvy does not do (a proxy, impersonation …) is refused by name: to ignore it would mean
another cluster, or another user.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from divvy.kube.errors import KubeconfigError
from divvy.kube.tls import trusting
from divvy.kubernetes_yaml import NOT_YAML, KubernetesLoader

# In place of a context, where there is no kubeconfig.
IN_POD = "service account"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REFUSED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("as", "as-uid", "as-groups", "as-user-extra", "auth-provider"),
}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True)
class ClusterConfig:
    """A server, and who asks it; ``cluster`` and ``user`` are the kubeconfig's settings."""

    server: str
    context: str = ""
    namespace: str = "default"
    cluster: Mapping[str, Any] = field(default_factory=dict)
    user: Mapping[str, Any] = field(default_factory=dict)

    def tls(self) -> ssl.SSLContext:
        """Return how to speak TLS: authorities and client certificate; raises KubeconfigError."""
        try:
            context = self._authorities()
            self._load_certificate(context)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KubeconfigError(f"kubeconfig, context {self.context}: {error}") from None
        return context

    def _authorities(self) -> ssl.SSLContext:
        path, data = (self.cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
        if data:
            # Comments beside certificates may be in any language.
            return trusting(data=_decoded(data).decode("ascii", "ignore"))
        context = trusting(path or None)
        insecure = self.cluster.get("insecure-skip-tls-verify") or False
        if not isinstance(insecure, bool):  # "false", of all texts
            raise TypeError("insecure-skip-tls-verify is neither true nor false")
        if insecure and not path:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        """Load the user's certificate; what a kubeconfig holds becomes a file for the moment."""
        with tempfile.TemporaryDirectory(prefix="divvy-user-") as folder:
            paths = []
            for name in ("client-certificate", "client-key"):
                if data := self.user.get(f"{name}-data"):
                    path = Path(folder, name)
                    path.touch(0o600)
                    path.write_bytes(_decoded(data))
                    paths.append(str(path))
                elif self.user.get(name):
                    paths.append(self.user[name])
            if len(paths) == 1:
                raise ValueError("client-certificate and client-key are expected together")
            if paths:
                context.load_cert_chain(paths[0], paths[1], _no_password)


def cluster_config(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> ClusterConfig:
    """Return server and user of a kubeconfig given by content or path, else the ambient ones.

    Ambient are, in this order: the files of ``KUBECONFIG`` merged, ``~/.kube/config``,
    the service account of the pod. Raises KubeconfigError.
    """
    try:
        document = _document(kubeconfig, environment)
        if document is None:
            return _in_cluster(os.environ)
        return _of_context(document, context)
    except (AttributeError, KeyError, TypeError) as error:
        raise KubeconfigError(f"the kubeconfig is malformed: {error!r}") from None
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {error.filename}: {error.strerror}") from None


def _of_context(document: Mapping[str, Any], context: str | None) -> ClusterConfig:
    name = context or document.get("current-context")
    if not name:
        raise KubeconfigError("the kubeconfig has no current context: name one")
    entry = _entry(document, "context", str(name))
    cluster = _entry(document, "cluster", str(entry.get("cluster")))
    user = _entry(document, "user", str(entry["user"])) if entry.get("user") else {}
    for kind, settings in (("cluster", cluster), ("user", user)):
        for key in _REFUSED[kind]:
            if settings.get(key):
                raise KubeconfigError(f"kubeconfig, context {name}: {key} is not supported")
    plugin = user.get("exec") or {}
    if plugin and plugin.get("apiVersion") not in _EXEC_VERSIONS:
        raise KubeconfigError(
            f"kubeconfig, context {name}: exec of {plugin.get('apiVersion')} is not supported"
        )
    server = cluster.get("server")
    if not isinstance(server, str) or not server:
        raise KubeconfigError(f"kubeconfig, context {name}: its cluster has no server")
    if not _is_url(server):
        raise KubeconfigError(
            f"kubeconfig, context {name}: its server {server} is not an http or https URL"
        )
    if urlsplit(server).scheme == "http":
        user = {}  # as with kubectl, no credentials are sent in the clear
    return ClusterConfig(
        server.rstrip("/"), str(name), entry.get("namespace") or "default", cluster, user
    )


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is no number, and a bracket too few
        return False


def merged(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge kubeconfigs: of entries with one name, and of settings, the first counts."""
    whole: dict[str, Any] = {}
    for document in documents:
        for key, value in document.items():
            if key in ("clusters", "contexts", "users"):
                known = {entry["name"] for entry in whole.setdefault(key, [])}
                whole[key] += [entry for entry in value or () if entry["name"] not in known]
            elif value:
                whole.setdefault(key, value)
    return whole


def _document(kubeconfig: str | None, environment: Mapping[str, str]) -> dict[str, Any] | None:
    if kubeconfig:
        if "\n" in kubeconfig.strip() or kubeconfig.lstrip().startswith("{"):
            return _parsed(kubeconfig, "the kubeconfig")
        return merged([_file(_expanded(kubeconfig))])
    listed = environment.get("KUBECONFIG")
    if listed:
        paths = [_expanded(path) for path in listed.split(os.pathsep) if path]
        files = [path for path in paths if path.exists()]
        if not files:
            raise KubeconfigError(f"KUBECONFIG={listed}: no such file")
        return merged(_file(path) for path in files)
    home = _expanded("~/.kube/config")
    return merged([_file(home)]) if home.exists() else None


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 (unchanged if the user has no home)


def _file(path: Path) -> dict[str, Any]:
    try:
        document = _parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {path}: {error.strerror}") from None
    folder = path.parent.absolute()
    for kind in ("cluster", "user"):
        for entry in document.get(f"{kind}s") or ():
            inner = entry.get(kind) or {}
            for key in _FILES:
                if inner.get(key):
                    inner[key] = str(folder / inner[key])
            plugin = inner.get("exec") or {}
            if os.sep in (plugin.get("command") or ""):  # any other is looked up in PATH
                plugin["command"] = str(folder / plugin["command"])
    return document


def _parsed(text: str | bytes, source: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, Loader=KubernetesLoader)
    except NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        # The parser's own words quote the line, which may be a token or a password.
        raise KubeconfigError(f"{source} is not YAML{where}: put text in quotes") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(f"{source} is not a kubeconfig")
    return document


def _entry(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    for entry in document.get(f"{kind}s") or ():
        if entry.get("name") == name:
            inner: dict[str, Any] = entry.get(kind) or {}
            return inner
    known = sorted(str(entry.get("name")) for entry in document.get(f"{kind}s") or ())
    raise KubeconfigError(
        f"the kubeconfig has no {kind} {name}; it has {', '.join(known) or 'none'}"
    )


def _in_cluster(environment: Mapping[str, str]) -> ClusterConfig:
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    try:
        namespace = (_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    if not (host and port and namespace):
        raise KubeconfigError("kubeconfig: none given: set KUBECONFIG, or write ~/.kube/config")
    return ClusterConfig(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        IN_POD,
        namespace,
        {"certificate-authority": str(_ACCOUNT / "ca.crt")},
        {"tokenFile": str(_ACCOUNT / "token")},
    )


def _no_password() -> str:
    # Without this OpenSSL asks at the terminal, and waits.
    raise ValueError("an encrypted client-key is not supported")


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"its certificates are not base64: {error}") from None

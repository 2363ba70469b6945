"""Which cluster, as whom: kubeconfigs read as kubectl reads them, the same for every command.

What Divvy does not do (a proxy, impersonation …) is refused by name: to ignore it would mean
another cluster, or another user.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import yaml
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from divvy.kube.errors import KubeconfigError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REFUSED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("as", "as-uid", "as-groups", "as-user-extra", "auth-provider"),
}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def cluster_config(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> SingleConfig:
    """Return server and user of a kubeconfig given by content or path, else the ambient ones.

    Ambient are, in this order: the files of ``KUBECONFIG`` merged, ``~/.kube/config``,
    the service account of the pod. Raises KubeconfigError.
    """
    document = _document(kubeconfig, environment)
    if document is None:
        return _in_cluster()
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
    try:
        config = KubeConfig.from_dict(document).get(context_name=str(name))
    except (ConfigError, KeyError, ValueError) as error:
        raise KubeconfigError(f"kubeconfig, context {name}: {error}") from None
    assert config is not None
    return config


def client(config: SingleConfig, timeout: float) -> httpx2.Client:
    """Return an HTTP client for the API server of a configuration; raises KubeconfigError."""
    user = config.user or User()
    plugin, user.exec = user.exec, None
    try:
        options = ConnectionParams(timeout=httpx2.Timeout(timeout)).httpx_params(
            config._replace(user=user)
        )
    except (ConfigError, OSError, ValueError) as error:
        raise KubeconfigError(f"kubeconfig, context {config.context_name}: {error}") from None
    finally:
        user.exec = plugin
    if plugin is not None:
        options["auth"] = _ExecAuth(plugin)
    return httpx2.Client(**options)


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
        return merged([_file(Path(kubeconfig).expanduser())])
    listed = environment.get("KUBECONFIG")
    if listed:
        paths = [Path(path).expanduser() for path in listed.split(os.pathsep) if path]
        files = [path for path in paths if path.is_file()]
        if not files:
            raise KubeconfigError(f"KUBECONFIG={listed}: no such file")
        return merged(_file(path) for path in files)
    home = Path("~/.kube/config").expanduser()
    return merged([_file(home)]) if home.is_file() else None


def _file(path: Path) -> dict[str, Any]:
    try:
        document = _parsed(path.read_text(), str(path))
    except OSError as error:
        raise KubeconfigError(f"kubeconfig {path}: {error.strerror}") from None
    for kind in ("cluster", "user"):
        for entry in document.get(f"{kind}s") or ():
            inner = entry.get(kind) or {}
            for key in _FILES:
                if inner.get(key):
                    inner[key] = str(path.parent / inner[key])
    return document


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{source} is not YAML: {error}") from None
    if not isinstance(document, dict):
        raise KubeconfigError(f"{source} is not a kubeconfig")
    return document


def _entry(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    for entry in document.get(f"{kind}s") or ():
        if entry.get("name") == name:
            inner: dict[str, Any] = entry.get(kind) or {}
            return inner
    raise KubeconfigError(f"the kubeconfig has no {kind} {name}")


def _in_cluster() -> SingleConfig:
    try:
        config = KubeConfig.from_service_account(_ACCOUNT).get()
    except (ConfigError, KeyError):
        raise KubeconfigError(
            "kubeconfig: none given: set KUBECONFIG, or write ~/.kube/config"
        ) from None
    assert config is not None
    return config


class _ExecAuth(httpx2.Auth):
    """Asks a credential plugin for a token, again when the server refuses the last one."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._token: str | None = None

    def sync_auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
            answer = yield request
            if answer.status_code != 401:
                return
        self._token = self._ask()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _ask(self) -> str:
        plugin = self._plugin
        asked = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential"}
        given = {**asked, "spec": {"interactive": False}}
        more = {entry.name: entry.value for entry in plugin.env or ()}
        command = [plugin.command, *(plugin.args or ())]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(given), **more},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            hint = f" ({plugin.installHint})" if getattr(plugin, "installHint", None) else ""
            raise KubeconfigError(
                f"kubeconfig: the credential plugin {plugin.command} does not run: "
                f"{error.strerror}{hint}"
            ) from None
        if done.returncode:
            raise KubeconfigError(
                f"kubeconfig: the credential plugin {plugin.command} failed: {done.stderr.strip()}"
            )
        try:
            status = json.loads(done.stdout)["status"]
        except (ValueError, KeyError, TypeError):
            raise KubeconfigError(
                f"kubeconfig: the credential plugin {plugin.command} printed no credential"
            ) from None
        if not status.get("token"):
            raise KubeconfigError(
                f"kubeconfig: the credential plugin {plugin.command} gives no token; client "
                "certificates from plugins are not supported"
            )
        return str(status["token"])

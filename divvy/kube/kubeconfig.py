"""Which cluster, as whom: kubeconfigs read as kubectl reads them, the same for every command.

What Divvy does not do (a proxy, impersonation …) is refused by name: to ignore it would mean
another cluster, or another user.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import yaml

from divvy.kube.errors import KubeconfigError
from divvy.kube.tls import trusting

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REFUSED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("as", "as-uid", "as-groups", "as-user-extra", "auth-provider"),
}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
# Of what a credential plugin has said, in the error if it fails.
_LAST_LINES, _LAST_CHARACTERS = 5, 4000
# A program that it leaves behind, such as a browser, may keep its stderr.
_LAST_WORDS_SECONDS = 1.0
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
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
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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
    raise KubeconfigError(f"the kubeconfig has no {kind} {name}")


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
        "service account",
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


def _cluster_info(config: ClusterConfig) -> dict[str, Any]:
    """Return what a plugin is told of the cluster where it asks for it."""
    path, data = (config.cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
    if path and not data:
        data = base64.b64encode(Path(path).read_bytes()).decode()
    named = {entry["name"]: entry for entry in config.cluster.get("extensions") or ()}
    cluster = {
        "server": config.server,
        "insecure-skip-tls-verify": config.cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": data and "".join(data.split()),
        "config": named.get(_EXEC_EXTENSION, {}).get("extension"),
    }
    return {key: value for key, value in cluster.items() if value}


def plugin_token(config: ClusterConfig) -> str:
    """Ask the user's credential plugin for a token; raises KubeconfigError."""
    plugin = config.user["exec"]
    command = str(plugin.get("command"))
    try:
        cluster_info = (
            {"cluster": _cluster_info(config)} if plugin.get("provideClusterInfo") else {}
        )
        given = {
            "apiVersion": plugin.get("apiVersion"),
            "kind": "ExecCredential",
            "spec": {"interactive": False, **cluster_info},
        }
        more = {entry["name"]: entry.get("value", "") for entry in plugin.get("env") or ()}
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(given), **more}
        done = _run_plugin([command, *(plugin.get("args") or ())], environment)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} is malformed: {error}"
        ) from None
    except OSError as error:
        hint = f" ({plugin['installHint']})" if plugin.get("installHint") else ""
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} does not run: {error.strerror}{hint}"
        ) from None
    if done.returncode:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} failed: {done.stderr.strip()}"
        )
    try:
        token = json.loads(done.stdout)["status"].get("token")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} printed no credential"
        ) from None
    if not token:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} gives no token; client "
            "certificates from plugins are not supported"
        )
    return str(token)


def _run_plugin(
    command: list[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a plugin; what it says on stderr, such as a page to open, is shown at once."""
    shown: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        try:
            showing = threading.Thread(target=_show, args=(running.stderr, shown), daemon=True)
            showing.start()
            printed = running.stdout.read()
            running.wait()
            showing.join(_LAST_WORDS_SECONDS)
        except BaseException:  # a Ctrl-C, while the plugin waits for its user
            running.kill()
            raise
    return subprocess.CompletedProcess(command, running.returncode, printed, "".join(shown))


def _show(stderr: IO[str], shown: deque[str]) -> None:
    """Show what comes as it comes: a prompt has no line end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    line = ""
    with contextlib.suppress(OSError, ValueError):  # closed: the command is being ended
        while part := os.read(stderr.fileno(), 4096):
            text = decoder.decode(part)
            with contextlib.suppress(OSError):  # the plugin goes on if nobody reads what we show
                sys.stderr.write(text)
                sys.stderr.flush()
            *lines, line = (line + text)[-_LAST_CHARACTERS:].split("\n")
            shown.extend(f"{whole}\n" for whole in lines)
    if line:
        shown.append(line)

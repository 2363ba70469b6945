"""``Access`` to the API server: its address and credentials, of a pod or of a kubeconfig."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from divvy.kube.errors import KubeconfigError
from divvy.kube.tls import trusting

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Access:
    """The way to an API server, in the clear without ``tls`` and ``ca_file``."""

    host: str
    port: int
    path: str = ""
    tls: ssl.SSLContext | None = None
    ca_file: Path | None = None
    token: str = ""
    token_file: Path | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return how to speak TLS now: the kubelet writes other authorities to the file."""
        return self.tls if self.ca_file is None else trusting(self.ca_file)

    def bearer(self) -> str:
        """Return the token of now: the kubelet writes another one every hour or so."""
        text = self.token if self.token_file is None else self.token_file.read_text()
        token = text.strip()
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token is not one line of ASCII")  # and stays out of the log
        return token


def access_from(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """Find the way: as a pod, otherwise by the kubeconfig; raises KubeconfigError."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    try:
        if host and port and (account / "token").exists():
            access = Access(
                host, int(port), ca_file=account / "ca.crt", token_file=account / "token"
            )
            access.context()  # fail now if the CA file is invalid
            return access
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"the service account cannot be used: {error}") from error
    return _of_kubeconfig(environment)


def _of_kubeconfig(environment: Mapping[str, str]) -> Access:
    # Beside a cluster, by hand and in tests: 5 MB that a pod does not need.
    from divvy.kube.kubeconfig import cluster_config  # noqa: PLC0415

    config = cluster_config(None, None, environment)
    for way in ("exec", "username"):
        if config.user.get(way):
            raise KubeconfigError(f"kubeconfig: users with {way} are not supported")
    server, token_file = urlsplit(config.server), config.user.get("tokenFile")
    return Access(
        host=server.hostname or "",
        port=server.port or _PORTS[server.scheme],
        path=server.path.rstrip("/"),
        tls=config.tls() if server.scheme == "https" else None,
        token=config.user.get("token") or "",
        token_file=Path(token_file) if token_file else None,
    )

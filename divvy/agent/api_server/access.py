"""Where the API server is, and who asks it: a pod's service account, or a kubeconfig."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORTS = {"http": 80, "https": 443}
# What a file that is no kubeconfig leads to.
_ODD = (KeyError, ValueError, TypeError, AttributeError)


class NoAccess(Exception):
    """It is not known where the API server is, or how to ask it: why."""


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
        return self.tls if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)

    def bearer(self) -> str:
        """Return the token of now: the kubelet writes another one every hour or so."""
        text = self.token if self.token_file is None else self.token_file.read_text()
        token = text.strip()
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token is not one line of ASCII")  # and stays out of the log
        return token


def access_from(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """Find the way: as a pod, otherwise by the kubeconfig; raises NoAccess."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    try:
        if host and port and (account / "token").exists():
            access = Access(
                host, int(port), ca_file=account / "ca.crt", token_file=account / "token"
            )
            access.context()  # a file that is none is told now
            return access
    except (OSError, ValueError) as error:
        raise NoAccess(f"the service account cannot be used: {error}") from error
    return _of_kubeconfig()


def _of_kubeconfig() -> Access:
    # Beside a cluster, by hand and in tests: 5 MB that a pod does not need.
    import yaml  # noqa: PLC0415
    from lightkube.config.client_adapter import verify_cluster  # noqa: PLC0415
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415
    from lightkube.config.models import User  # noqa: PLC0415
    from lightkube.core.exceptions import ConfigError  # noqa: PLC0415

    try:
        config = KubeConfig.from_env().get()
        if config is None:
            raise NoAccess(
                "neither a service account nor a kubeconfig says where the API server is"
            )
        user, server = config.user or User(), urlsplit(config.cluster.server)
        for way in ("exec", "auth_provider", "username"):
            if getattr(user, way):
                raise NoAccess(f"kubeconfig: users with {way} are not supported")
        if server.scheme not in _PORTS or not server.hostname:
            raise NoAccess("kubeconfig: the server is not an http or https URL with a host")
        secure = server.scheme == "https"
        return Access(
            host=server.hostname,
            port=server.port or _PORTS[server.scheme],
            path=server.path.rstrip("/"),
            tls=verify_cluster(config.cluster, user, config.abs_file) if secure else None,
            token=user.token or "",
            token_file=Path(config.abs_file(user.token_file)) if user.token_file else None,
        )
    except (ConfigError, yaml.YAMLError, OSError, *_ODD) as error:
        raise NoAccess(f"the kubeconfig cannot be used: {error}") from error

"""A real API server without nodes: etcd, kube-apiserver and two controllers on free ports.

It starts in seconds, needs neither root nor the lab, and a test may have two of them: what
`divvy up` does about another cluster cannot be seen with one.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lab.cluster.tools import KUBERNETES
from lab.fakes.kubeconfig import write_kubeconfig
from lab.fakes.ports import free_port
from tests.api_reader import ApiReader

_TOKEN = "bare-cluster-administrator"
VIEWER_TOKEN = "bare-cluster-viewer"
_CONTROLLERS = "namespace-controller,garbage-collector-controller,daemonset-controller"


@dataclass(frozen=True)
class BareCluster:
    """A running API server, and the kubeconfig of its administrator."""

    kubeconfig: Path
    server: str
    restart_api_server: Callable[[], None] = field(repr=False)
    """Kill the API server, and return when another one serves."""

    def try_kubectl(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator and return how it went."""
        command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; fail with its words."""
        done = self.try_kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    @cached_property
    def api(self) -> ApiReader:
        """Return a connection to it, as administrator."""
        return ApiReader(self.kubeconfig)

    def get(self, *arguments: str) -> Any:
        """Return what kubectl get answers."""
        return self.api.get(*arguments)

    def names(self, kind: str, namespace: str) -> set[str]:
        """Return the names of the objects of a kind in a namespace."""
        items = self.get(kind, f"--namespace={namespace}")["items"]
        return {obj["metadata"]["name"] for obj in items} - {"kube-root-ca.crt"}

    def uid(self, kind: str, name: str, namespace: str) -> str | None:
        """Return an object's uid, or None."""
        obj = self.api.try_get(kind, name, f"--namespace={namespace}")
        return None if obj is None else str(obj["metadata"]["uid"])


@contextlib.contextmanager
def bare_cluster(*controllers: str) -> Iterator[BareCluster]:
    """Start a cluster, yield it when it serves, end it and remove what it kept.

    ``controllers`` run beside those that every cluster of the tests has.
    """
    with tempfile.TemporaryDirectory(prefix="bare-cluster-") as text, contextlib.ExitStack() as run:
        folder = Path(text)
        etcd, peer, api = (free_port() for _ in range(3))
        _write_keys(folder)
        server = f"https://127.0.0.1:{api}"
        serve: list[Callable[[], None]] = []
        cluster = BareCluster(folder / "kubeconfig", server, lambda: serve[0]())
        unverified = {"insecure-skip-tls-verify": True}
        write_kubeconfig(cluster.kubeconfig, server, {"token": _TOKEN}, **unverified)
        _start(
            run,
            folder,
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--experimental-watch-progress-notify-interval=500ms",
        )
        _wait_etcd(folder, etcd)
        api_server = (
            str(KUBERNETES.bin / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-account-issuer=https://bare",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--disable-admission-plugins=ServiceAccount",
        )
        processes = [_start(run, folder, *api_server)]

        def restart() -> None:
            processes[-1].kill()
            processes[-1].wait()
            processes.append(_start(run, folder, *api_server))
            _wait_ready(cluster, folder)

        serve.append(restart)
        _wait_ready(cluster, folder)
        _start(
            run,
            folder,
            str(KUBERNETES.bin / "kube-controller-manager"),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--controllers={','.join((_CONTROLLERS, *controllers))}",
            "--leader-elect=false",
            "--secure-port=0",
            # With the default, a burst of pods and of their claims takes seconds.
            "--kube-api-qps=300",
            "--kube-api-burst=600",
        )
        run.callback(cluster.api.close)
        yield cluster


def _wait_ready(cluster: BareCluster, folder: Path) -> None:
    deadline = time.monotonic() + 90
    while "ok" not in cluster.try_kubectl("get", "--raw=/readyz").stdout:
        assert time.monotonic() < deadline, (folder / "kube-apiserver.log").read_text()[-2000:]
        time.sleep(0.2)


def _wait_etcd(folder: Path, port: int) -> None:
    """Wait until etcd answers: from 1.37 on, the API server gives up after 10 s without it."""
    deadline = time.monotonic() + 90
    while not _answers(f"http://127.0.0.1:{port}/health"):
        assert time.monotonic() < deadline, (folder / "etcd.log").read_text()[-2000:]
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        # It is on this machine: no proxy is on the way.
        return httpx2.get(url, timeout=5, trust_env=False).is_success
    except httpx2.HTTPError:
        return False


def _start(run: contextlib.ExitStack, folder: Path, *command: str) -> subprocess.Popen[bytes]:
    log = run.enter_context((folder / f"{Path(command[0]).name}.log").open("a"))
    # A test session that is killed leaves none behind.
    bound = ("setpriv", "--pdeathsig", "KILL", *command)
    process = subprocess.Popen(bound, stdout=log, stderr=log)
    run.callback(process.wait)
    run.callback(process.kill)
    return process


def _write_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (folder / "accounts.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (folder / "tokens.csv").write_text(
        f'{_TOKEN},administrator,1,"system:masters"\n{VIEWER_TOKEN},viewer,2\n'
    )

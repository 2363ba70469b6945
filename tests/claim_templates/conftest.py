"""A real API server with a controller of claims, and the template maker's process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.fakes.ports import free_port
from tests.bare_cluster import bare_cluster
from tests.claim_templates.link import Link
from tests.render.objects.claims.api_server import MEMORY, ApiServer, pod, policies_of
from tests.render.objects.claims.conftest import CLUSTER

ACCOUNT = "divvy-claim-templates"
UNUSED_SECONDS = 1.5


class MakerProcess:
    """The template maker as its pod runs it, with its own account's token."""

    def __init__(
        self,
        folder: Path,
        server: ApiServer,
        address: str,
        unused_seconds: float = UNUSED_SECONDS,
    ) -> None:
        self._unused_seconds = unused_seconds
        self._folder = folder
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        token = server.cluster.kubectl(
            *("create", "token", ACCOUNT, "--namespace=divvy-system", "--duration=2h")
        ).strip()
        config = yaml.safe_load(server.cluster.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        config["clusters"][0]["cluster"]["server"] = address
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))

    def start(self) -> None:
        """Start it."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._folder / "kubeconfig"),
            "DIVVY_LISTEN": "127.0.0.1",
            "DIVVY_PORT": str(self.port),
            "DIVVY_UNUSED_SECONDS": str(self._unused_seconds),
            "DIVVY_WATCH_SECONDS": "4",
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "divvy.claim_templates"],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it at once, as a node that loses its power does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """End it as the kubelet does; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(30)
        self._process = None
        return code

    def page(self, path: str) -> tuple[int, str]:
        """Return status and text of one of its pages; 0 if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        """Return whether it says that it knows everything."""
        return self.page("/readyz")[0] == 200

    def figure(self, name: str) -> float:
        """Return a metric."""
        for line in self.page("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no {name}")

    @property
    def log(self) -> str:
        """Return what it has said."""
        return (self._folder / "log").read_text()


@pytest.fixture(scope="package")
def server() -> Iterator[ApiServer]:
    """Give an API server that makes claims from templates, with the objects of a cluster."""
    with bare_cluster("resourceclaim-controller") as cluster:
        api_server = ApiServer(cluster)
        api_server.apply(*policies_of(CLUSTER))
        api_server.until(lambda: _gets_a_claim(api_server))
        yield api_server
        api_server.close()


def _gets_a_claim(server: ApiServer) -> bool:
    """Return whether all policies have taken effect; a pod before that never gets a claim.

    The one that refuses may be there before the one that makes claims of limits.
    """
    answer = server.dry_run(pod({MEMORY: 1}))
    return not answer.refusal and bool(answer.templates)


@pytest.fixture
def link(server: ApiServer) -> Iterator[Link]:
    """Give the connection between the maker and the server, which can break."""
    port = int(server.cluster.server.rpartition(":")[2])
    with contextlib.closing(Link(port)) as open_link:
        yield open_link


@pytest.fixture
def maker(server: ApiServer, link: Link, tmp_path: Path) -> Iterator[MakerProcess]:
    """Give a template maker that has not been started."""
    process = MakerProcess(tmp_path, server, f"https://127.0.0.1:{link.port}")
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def namespace(server: ApiServer, tmp_path: Path) -> Iterator[str]:
    """Give a namespace of this test's own."""
    name = server.namespace(f"t-{abs(hash(tmp_path)) % 10**10}")
    yield name
    server.send("DELETE", f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")
    server.cluster.kubectl("delete", "namespace", name, "--wait=false")

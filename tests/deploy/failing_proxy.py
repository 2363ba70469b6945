"""A proxy before an API server that fails a part of the requests: refused, put off, or cut."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import yaml

from tests.bare_cluster import BareCluster

_HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding"}
# What happens instead: a status, or the connection ends before or after the request was done.
FAULTS = (429, 500, 503, "cut before", "cut after")


@contextlib.contextmanager
def failing_proxy(
    cluster: BareCluster, folder: Path, part: float, seed: int
) -> Iterator[tuple[Path, list[str]]]:
    """Yield a kubeconfig that leads through the proxy, and what it has failed.

    ``part`` of all requests, from 0 to 1, fail.
    """
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = config["users"][0]["user"]["token"]
    dice, turn = random.Random(seed), threading.Lock()
    failed: list[str] = []
    upstream = httpx2.Client(base_url=cluster.server, verify=False, timeout=60, trust_env=False)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            with turn:
                fault = dice.choice(FAULTS) if dice.random() < part else None
            if fault:
                failed.append(f"{self.command} {self.path}: {fault}")
            if isinstance(fault, int):
                self.send(fault, {"Retry-After": "1"} if fault == 429 else {}, b"busy")
                return
            if fault == "cut before":
                self.close_connection = True
                return
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            headers["Authorization"] = f"Bearer {token}"
            reply = upstream.request(self.command, self.path, headers=headers, content=body)
            if fault == "cut after":
                self.close_connection = True
                return
            kept = {k: v for k, v in reply.headers.items() if k.lower() not in _HOP}
            kept.pop("content-encoding", None)
            self.send(reply.status_code, kept, reply.content)

        def send(self, code: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    path = folder / "failing.yaml"
    path.write_text(yaml.safe_dump(config))
    try:
        yield path, failed
    finally:
        server.shutdown()
        server.server_close()
        upstream.close()

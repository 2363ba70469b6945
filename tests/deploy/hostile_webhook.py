"""Admission webhooks that change, refuse or keep waiting what is deployed."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.bare_cluster import BareCluster

NAME = "hostile"
Answer = Callable[[dict[str, Any]], dict[str, Any]]


def patching(*operations: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a webhook that changes an object."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def refusing(request: dict[str, Any]) -> dict[str, Any]:
    """Refuse everything."""
    return {"allowed": False, "status": {"message": f"policy forbids {request['name']}"}}


def silent(_: dict[str, Any]) -> dict[str, Any]:
    """Answer later than anybody waits."""
    time.sleep(3)
    return {"allowed": True}


@contextlib.contextmanager
def webhook(
    cluster: BareCluster,
    folder: Path,
    answer: Answer | None,
    *,
    resources: tuple[str, ...] = ("daemonsets",),
    operations: tuple[str, ...] = ("CREATE", "UPDATE"),
    mutating: bool = False,
    side_effects: str = "None",
) -> Iterator[None]:
    """Register a webhook whose failure is the request's; without an answer nobody serves it."""
    certificate, key = folder / "webhook.pem", folder / "webhook.key"
    subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"),
        check=True, capture_output=True,
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert answer is not None
            response = {"uid": review["request"]["uid"], **answer(review["request"])}
            kinds = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
            body = json.dumps({**kinds, "response": response}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port if answer else 1
    kind = f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration"
    hook = {
        "name": "hostile.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": side_effects,
        "timeoutSeconds": 1,
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(certificate.read_bytes()).decode(),
        },
        "rules": [
            {
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "operations": list(operations),
                "resources": list(resources),
            }
        ],
    }
    manifest = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [hook],
    }
    cluster.kubectl("create", "--filename=-", stdin=json.dumps(manifest))
    time.sleep(1)  # until the API server has seen it
    try:
        yield
    finally:
        cluster.kubectl("delete", kind.lower(), NAME)
        time.sleep(1)
        server.shutdown()
        server.server_close()

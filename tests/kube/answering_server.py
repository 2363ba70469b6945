"""An API server that answers as a test says, over HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig


class Sent(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Server:
    """Answers requests in turn, each with a status and lines; keeps what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, list[Any]]] = []
        self.requests: list[Sent] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                parts = urlsplit(self.path)
                text = self.rfile.read(length).decode()
                body = json.loads(text) if text else None
                query = dict(parse_qsl(parts.query))
                sent = Sent(self.command, parts.path, query, dict(self.headers), body)
                server.requests.append(sent)
                code, lines = server.answers.pop(0)
                self.send_response(code)
                self.end_headers()
                for line in lines:
                    self.wfile.write(line if isinstance(line, bytes) else json.dumps(line).encode())
                    self.wfile.write(b"\n")

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def client(self, **user: Any) -> Client:
        return Client(ClusterConfig(self.url, user=user), seconds=5)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

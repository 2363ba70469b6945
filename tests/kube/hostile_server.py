"""An API server in each of whose lists and watches stand objects that cannot be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lab.fakes.kubeconfig import write_kubeconfig

_DEEP = b"[" * 4900 + b"]" * 4900
DEEP, ODD, LARGE = "deep", "odd", "large"
KINDS = (DEEP, ODD, LARGE)


def hostile(kind: str, sound: dict[str, Any] | None) -> list[bytes]:
    """Return hostile objects of a kind, made after a sound one of the same list."""
    plain = json.loads(json.dumps(sound or {"metadata": {}, "spec": {}}))
    plain["metadata"] |= {"namespace": "mallory", "resourceVersion": "6", "uid": f"u-{kind}"}
    if kind == DEEP:
        plain["metadata"]["name"] = DEEP
        plain["hostile"] = None
        return [
            json.dumps(plain).encode().replace(b'"hostile": null', b'"hostile":{"a":%s}' % _DEEP)
        ]
    if kind == LARGE:
        filler = {f"example.com/{at}": "x" * 200 for at in range(6000)}
        return [
            json.dumps(
                {
                    **plain,
                    "metadata": {
                        **plain["metadata"],
                        "name": f"large-{at}",
                        "managedFields": [filler],
                    },
                }
            ).encode()
            for at in range(4)
        ]
    odd: list[Any] = [5, None, "odd", [], {}, {"metadata": None}, {"metadata": {"name": 7}}]
    for at, key in enumerate(plain):
        for value in ("odd", 7, [3], [None], {"a": None}):
            changed = {**plain, key: value}
            if key != "metadata":
                changed["metadata"] = {**plain["metadata"], "name": f"odd-{at}"}
            odd.append(changed)
    for part in ("spec", "status"):
        for key in plain.get(part) or ():
            for value in ("odd", 7, [3], [{}], {}, None):
                metadata = {**plain["metadata"], "name": f"odd-{part}-{key}".lower()}
                odd.append({**plain, "metadata": metadata, part: {**plain[part], key: value}})
    return [json.dumps(obj).encode() for obj in odd]


class HostileServer:
    """Answers lists of what is ``sound``, by the plural of their kind, with hostile ones among it.

    ``kind`` says with which; None: with none. ``asked`` are the plurals that were listed or
    watched.
    """

    def __init__(self, sound: dict[str, list[dict[str, Any]]]) -> None:
        self.sound = sound
        self.kind: str | None = None
        self.asked: set[str] = set()
        # Whether each page of a list is followed by itself.
        self.same_page = False
        # The texts of lists that are answered as they are.
        self.made: dict[str, list[bytes]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                server.answer(self, parts.path, parse_qs(parts.query))

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def items(self, resource: str) -> list[bytes]:
        if resource in self.made:
            return self.made[resource]
        sound = self.sound.get(resource, [])
        items = [json.dumps(obj).encode() for obj in sound]
        if self.kind is not None:
            bad = hostile(self.kind, sound[0] if sound else None)
            items = [*bad[: len(bad) // 2], *items, *bad[len(bad) // 2 :]]
        return items

    def answer(self, to: BaseHTTPRequestHandler, path: str, query: dict[str, list[str]]) -> None:
        resource = path.rpartition("/")[2]
        if path == "/version":
            return self._send(to, b'{"gitVersion":"v1.37.2"}')
        if resource not in self.sound:
            named = [
                o
                for o in self.sound.get(path.split("/")[-2], ())
                if o["metadata"]["name"] == resource
            ]
            return self._send(
                to, json.dumps(named[0]).encode() if named else b"{}", 200 if named else 404
            )
        self.asked.add(resource)
        items = self.items(resource)
        if "watch" in query:
            lines = [b'{"type":"ADDED","object":%s}\n' % item for item in items]
            return self._send(to, b"".join(lines))
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query.get("limit", [str(len(items))])[0])
        more = b"" if end >= len(items) else b',"continue":"%d"' % end
        if self.same_page:
            more = b',"continue":"%d"' % start
        text = b'{"items":[%s],"metadata":{"resourceVersion":"7"%s}}'
        return self._send(to, text % (b",".join(items[start:end]), more))

    @staticmethod
    def _send(to: BaseHTTPRequestHandler, text: bytes, code: int = 200) -> None:
        to.send_response(code)
        to.send_header("Content-Length", str(len(text)))
        to.end_headers()
        to.wfile.write(text)

    def kubeconfig(self, folder: Path) -> Path:
        return write_kubeconfig(folder / "kubeconfig", self.url, {"token": "t"})

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def hostile_server(sound: dict[str, list[dict[str, Any]]]) -> Iterator[HostileServer]:
    server = HostileServer(sound)
    try:
        yield server
    finally:
        server.close()

"""An API server that is busy, broken or slow for a while: afterwards pods have their templates."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from divvy.claim_templates.client import Api
from divvy.claim_templates.maker import Maker
from lab.fakes.scene import running, until
from tests.claim_templates.test_client import PodsApi, pod, serving
from tests.thoroughness import at_length

_ERRORS = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n",
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: soon\r\n",
    b"HTTP/1.1 500 Internal Server Error\r\n",
    b"HTTP/1.1 503 Service Unavailable\r\n",
    b"HTTP/1.1 200 OK\r\n",
)
_BODIES = (
    b"", b"no", b"null", b"[]", b"7", b"{}", b'{"metadata":', b"\xff\xfe", b"[" * 5000,
    b'{"metadata": 1, "items": 2}', b'{"metadata": {}, "items": [null, 7, {"metadata": []}]}',
    b'{"kind": "Status", "code": "x", "message": ["m"]}', b'{"type": 7, "object": []}\n',
)  # fmt: skip


class FaultyApi(PodsApi):
    """Keeps the templates that are created; while it is ``faulty``, most answers are odd."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.faulty = True
        self.gone = False
        self.faults = 0
        self.pods = [pod(str(n), f"divvy-1x{n}00m") for n in range(1, 6)]
        self.created: set[str] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, or fail to."""
        line = (await reader.readline()).decode()
        if not line:
            writer.close()
            return
        length = 0
        while header := (await reader.readline()).strip().decode():
            name, _, value = header.partition(":")
            length = int(value) if name.lower() == "content-length" else length
        body = await reader.readexactly(length)
        if self.faulty and self.random.random() < 0.7:
            await self._fail(writer)
        elif line.startswith("POST"):
            template = json.loads(body)
            self.created.add(template["metadata"].get("name", ""))
            self._send(writer, b"HTTP/1.1 201 Created\r\n", body)
        elif "watch=true" in line:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            await writer.drain()
            await reader.read()
        else:
            items = self.pods if "/pods" in line else []
            page = {"metadata": {"resourceVersion": "1"}, "items": items}
            self._send(writer, b"HTTP/1.1 200 OK\r\n", json.dumps(page).encode())
        writer.close()

    async def _fail(self, writer: asyncio.StreamWriter) -> None:
        self.faults += 1
        way = self.random.random()
        if way < 0.1:
            writer.transport.abort()
        elif way < 0.2:
            await asyncio.sleep(self.random.choice((0.2, 1.0)))
        elif way < 0.3:
            writer.write(self.random.randbytes(300))
        else:
            self._send(writer, self.random.choice(_ERRORS), self.random.choice(_BODIES))

    def _send(self, writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(head + length + b"Connection: close\r\n\r\n" + body)


@pytest.mark.parametrize("seed", range(at_length(1, 5)))
async def test_makes_every_template_once_the_server_is_well_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr("tests.claim_templates.test_client.PodsApi", lambda: FaultyApi(random))
    async with serving(tmp_path, monkeypatch) as api:
        assert isinstance(api, FaultyApi)
        maker = Maker(Api())
        async with running(maker.run()):
            await asyncio.sleep(at_length(3, 15))
            assert api.faults > 3
            assert not maker.hanging
            api.faulty = False
            await until(lambda: len(api.created) == len(api.pods) and maker.ready)

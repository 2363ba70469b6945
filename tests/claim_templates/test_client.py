"""Lists that are kept up by watches, where the API server has forgotten what a watch follows."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from divvy.claim_templates.client import Api, templates_of
from divvy.claim_templates.desired_templates import Key
from divvy.kube import async_client
from divvy.kube.errors import Unreachable
from lab.fakes.kubeconfig import write_kubeconfig
from lab.fakes.listening import listening
from lab.fakes.scene import running, until


def pod(uid: str, *templates: str, **more: Any) -> dict[str, Any]:
    claims = [{"name": name, "resourceClaimTemplateName": name} for name in templates]
    return {
        "metadata": {"name": uid, "namespace": "n", "uid": uid, **more.get("metadata", {})},
        "spec": {"containers": [], "resourceClaims": claims},
        "status": more.get("status", {}),
    }


class PodsApi:
    """Answers lists by pages, and watches; a watch ends with "gone" until ``pods`` is changed."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.pods = [pod("1", "divvy-1x10m")]
        self.odd: list[list[Any]] = []
        self.event: dict[str, Any] | None = None
        self.version = 1
        self.gone = True
        self.seconds_per_page = 0.0
        self.single: dict[str, Any] | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        line = (await reader.readline()).decode()
        while (await reader.readline()).strip():
            pass
        self.asked.append(line.split()[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Connection: close\r\n\r\n")
        if "watch=true" in line:
            await self._watch(reader, writer)
        else:
            query = dict(parse_qsl(line.split()[1].partition("?")[2]))
            start = int(query.get("continue", 0))
            end = start + int(query.get("limit", len(self.pods)))
            metadata = {"resourceVersion": str(self.version)}
            if end < len(self.pods):
                metadata["continue"] = str(end)
            items = self.odd.pop() if self.odd else self.pods[start:end]
            page = self.single or {"metadata": metadata, "items": items}
            await asyncio.sleep(self.seconds_per_page)
            writer.write(json.dumps(page).encode())

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.gone:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            writer.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            self.gone = False
            self.version += 1
            self.pods = [pod("2", "divvy-1x20m")]
            return
        if self.event is not None:
            event, self.event = self.event, None
            writer.write(json.dumps({"type": "MODIFIED", "object": event}).encode() + b"\n")
        await writer.drain()
        await reader.read()  # until the client leaves


@asynccontextmanager
async def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PodsApi]:
    api = PodsApi()
    async with listening(api.answer) as port:
        path = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield api


async def test_reads_for_the_maker_as_long_as_the_server_works_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One template that is in the way, and the pods of a namespace that has room again."""
    monkeypatch.setattr(async_client, "_SECONDS", 0.3)
    async with serving(tmp_path, monkeypatch) as server:
        server.seconds_per_page = 1.0
        api = Api()
        assert [uid async for uid, _ in api.pods_of("n")] == ["1"]
        server.single = {"metadata": {"name": "divvy-1x10m"}, "spec": {"a": 1}}
        assert await api.read(Key("n", "divvy-1x10m")) == {"a": 1}
        await api.close()


async def test_relists_after_a_watch_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs: list[set[Key]] = []
    async with serving(tmp_path, monkeypatch) as server:
        api = Api()
        changed = asyncio.Event()

        def replace(pods_by_template: Mapping[str, frozenset[Key]]) -> None:
            needs.append({key for keys in pods_by_template.values() for key in keys})
            if len(needs) == 2:
                changed.set()

        async with running(api.watch_pods(replace, lambda _uid, _named: None)):
            await until(changed.is_set)
        await api.close()
    # The pod that is gone is not among those of the second list.
    assert needs == [{Key("n", "divvy-1x10m")}, {Key("n", "divvy-1x20m")}]
    assert "resourceVersion=1" in server.asked[1]
    assert "resourceVersion" not in server.asked[2]
    assert all("labelSelector=divvy.gpu%2Fby-size%3Dtrue" in path for path in server.asked)


# What a pod has of a tenant's: one long text, or as many small parts, each 20 times as large in
# memory as it is in JSON.
@pytest.mark.parametrize(
    ("number", "annotation", "variables"), [(220, "x" * (1 << 20), 0), (11, "", 60_000)]
)
async def test_holds_little_of_large_pods_in_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    annotation: str,
    variables: int,
) -> None:
    size = 1 << 20
    pods: dict[str, frozenset[Key]] = {}
    async with serving(tmp_path, monkeypatch) as server:
        server.gone = False
        # One text behind all of them: only what the client makes of it counts.
        metadata = {"annotations": {"filler": annotation}}
        containers = [{"env": [{"name": "a"}] * variables}]
        server.pods = [
            pod(str(at), f"divvy-1x{at + 1}m", metadata=metadata) for at in range(number)
        ]
        for large in server.pods:
            large["spec"]["containers"] = containers
        api = Api()
        listed = asyncio.Event()

        def replace(entries: Mapping[str, frozenset[Key]]) -> None:
            pods.update(entries)
            listed.set()

        tracemalloc.start()
        async with running(api.watch_pods(replace, lambda _uid, _named: None)):
            await until(listed.is_set, 120)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        await api.close()
    assert len(pods) == number
    assert pods["7"] == {Key("n", "divvy-1x8m")}
    # Server and client are one process here: some copies of a page of ten, far from all pods.
    assert peak < 100 * size


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        (pod("1", "divvy-1x10m", "mine"), {"divvy-1x10m"}),
        (pod("1"), set()),
        (pod("1", "divvy-1x10m", status={"phase": "Running"}), {"divvy-1x10m"}),
        (pod("1", "divvy-1x10m", status={"phase": "Succeeded"}), set()),
        (pod("1", "divvy-1x10m", status={"phase": "Failed"}), set()),
        (
            pod("1", "divvy-1x10m", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            set(),
        ),
    ],
)
def test_lists_the_templates_that_a_pod_still_needs(pod: dict[str, Any], named: set[str]) -> None:
    assert templates_of(pod) == {Key("n", name) for name in named}


def test_keeps_few_names_of_a_pod_that_names_many() -> None:
    """A pod has room for thousands, and each is kept."""
    many = pod("1", *(f"divvy-1x{size}m" for size in range(1, 5001)))
    assert len(templates_of(many)) == 64


async def test_reads_a_list_of_many_pages_that_takes_longer_than_a_watch_may_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods: dict[str, frozenset[Key]] = {}
    async with serving(tmp_path, monkeypatch) as server:
        server.gone, server.seconds_per_page = False, 0.5
        server.pods = [pod(str(at), f"divvy-1x{at + 1}m") for at in range(60)]
        api = Api(watch_seconds=2)
        listed = asyncio.Event()

        def replace(entries: Mapping[str, frozenset[Key]]) -> None:
            pods.update(entries)
            listed.set()

        async with running(api.watch_pods(replace, lambda _uid, _named: None)):
            await until(listed.is_set, 20)
        await api.close()
    assert len(pods) == 60


@pytest.mark.parametrize(
    "odd",
    [
        {},
        "pod",
        None,
        {"metadata": None},
        {"metadata": {"name": "odd", "namespace": "m", "resourceVersion": "2"}, "spec": "odd"},
        {"metadata": {"name": "odd", "namespace": "m", "resourceVersion": "2"}, "spec": {
            "resourceClaims": [{"name": "a", "resourceClaimTemplateName": 5}]}},
    ],
)  # fmt: skip
async def test_reads_the_others_beside_what_is_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In the list and as an event: the watch goes on, and the odd one is named once."""
    pods: dict[str, frozenset[Key]] = {}
    async with serving(tmp_path, monkeypatch) as server:
        server.gone, server.odd = False, [[odd, server.pods[0], odd]]
        server.event = odd
        api = Api()

        def replace(entries: Mapping[str, frozenset[Key]]) -> None:
            pods.update(entries)

        async with running(api.watch_pods(replace, lambda _uid, _named: None)):
            await until(lambda: server.event is None and api._in_touch == {"pods"}, 20)
            await asyncio.sleep(0.1)
            assert api._in_touch == {"pods"}
        await api.close()
    assert pods == {"1": frozenset({Key("n", "divvy-1x10m")})}
    assert len(server.asked) == 2
    named = [record for record in caplog.records if "not read" in record.message]
    assert len(named) == 1


async def test_deletes_while_it_lists_what_a_namespace_has_too_much_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier flood has left may be larger than the controller's memory."""
    listed: dict[Key, bytes] = {}
    needed = Key("n", "divvy-1x700m")
    async with serving(tmp_path, monkeypatch) as server:
        server.gone = False
        server.pods = [
            {"metadata": {"name": f"divvy-1x{at + 1}m", "namespace": "n"}, "spec": {"spec": {}}}
            for at in range(700)
        ]
        server.pods += [
            {"metadata": {"name": "divvy-1x5m", "namespace": "other"}, "spec": {"spec": {}}}
        ]
        api = Api()

        async def is_unneeded(key: Key) -> bool:
            return key != needed

        watch = api.watch_templates(listed.update, lambda _key, _digest: None, is_unneeded)
        async with running(watch):
            await until(lambda: bool(listed), 60)
        await api.close()
        deleted = [path for path in server.asked if "limit" not in path and "watch" not in path]
    assert len(listed) == 512 + 2
    assert needed in listed
    assert Key("other", "divvy-1x5m") in listed
    assert len(deleted) == 700 - 513


async def test_reports_an_answer_that_is_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as server:
        server.pods = []
        api = Api()
        key = Key("n", "divvy-1x10m")
        for asked in (api.create(key, {}), api.read(key)):
            with pytest.raises(Unreachable):
                await asked
        await api.close()

"""What is written to the node: the newest status, once, whatever the API server does meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from divvy.agent.api_server import node_status
from divvy.agent.api_server.client import ApiServer
from divvy.agent.api_server.node_status import NodeStatusWriter, timed, untimed
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.status import NodeStatus
from divvy.kube import backoff
from divvy.model.api_names import STATUS_ANNOTATION
from lab.fakes.api import FakeApi, fake_api
from lab.fakes.scene import until

STATUS = NodeStatus("1", "pool", "whole", "pool", "", "550", simulated=True, gpus=(), resources={})
DEGRADED = replace(STATUS, problem="a GPU does not answer")
NODE, EVENTS = "/api/v1/nodes/n", "/api/v1/namespaces/default/events"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.05)


class Writing:
    """A writer at work on the node of a fake API."""

    def __init__(self, api: FakeApi, link: ApiServer) -> None:
        self.api = api
        self.link = link
        self.writer = NodeStatusWriter(link)
        self.watched = self.node()

    def node(self) -> NodeView:
        """Return the node as a watch tells it now."""
        metadata = self.api.seen(NODE)["metadata"]  # type: ignore[index]
        labels, annotations = metadata["labels"], metadata["annotations"]
        return NodeView("1", labels, annotations, "", metadata["resourceVersion"])

    def update(self, status: NodeStatus) -> None:
        """Tell the writer a status, as one that knows the node as it was watched last."""
        self.writer.update(self.watched, status, None, (), None)

    @property
    def reason(self) -> str:
        """Return what stands on the node."""
        text = self.api.node["metadata"]["annotations"].get(STATUS_ANNOTATION, "")
        return "degraded" if DEGRADED.problem in text else "well" if text else ""


@asynccontextmanager
async def writing(folder: Path) -> AsyncIterator[Writing]:
    async with fake_api("n") as api:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(api.kubeconfig(folder / "config")))
            link = ApiServer("n", "divvy-system", "divvy")
        work = Writing(api, link)
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(work.writer.write()),
                tasks.create_task(work.writer.record()),
            ]
            yield work
            for loop in loops:
                loop.cancel()
        await link.close()


async def test_writes_a_status_once_while_the_watch_lags(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        for number in range(50):
            # As reconciliation does each second; the watch tells nothing at all.
            work.update(DEGRADED if number < 25 else STATUS)
            await asyncio.sleep(0.01)
        await until(lambda: work.reason == "well")
        assert len(work.api.patches) == 2


async def test_skips_a_status_superseded_while_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with writing(tmp_path) as work:
        work.api.refused = {("PATCH", NODE)}
        work.update(DEGRADED)
        await until(lambda: "cannot write to the node: too many requests" in caplog.messages)
        work.update(STATUS)
        work.api.refused = set()
        for _ in range(20):
            work.update(STATUS)
            await asyncio.sleep(0.02)
        await until(lambda: work.reason == "well")
        assert len(work.api.patches) == 1


async def test_restores_a_status_that_others_remove(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        work.api.node["metadata"]["annotations"].clear()
        work.api.label(another="label")
        work.watched = work.node()
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        assert len(work.api.patches) == 2


async def test_rewrites_the_status_after_a_cluster_restore_from_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions are older than that of the last write, and so is what is on the node."""
    monkeypatch.setattr(node_status, "_BEHIND_SECONDS", 0.5)
    async with writing(tmp_path) as work:
        work.api.version = 5000
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        work.api.node["metadata"]["annotations"].clear()
        work.api.version = 100
        for _ in range(100):
            work.watched = work.node()
            work.update(STATUS)
            await asyncio.sleep(0.01)
        assert work.reason == "well"
        assert len(work.api.patches) == 2


async def test_writes_the_status_once_to_a_recreated_node(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.api.node["metadata"]["uid"] = "another"
        for _ in range(20):
            work.update(STATUS)  # the watch tells of the one before
            await asyncio.sleep(0.02)
        assert work.reason == "well"
        assert len(work.api.patches) == 1


async def test_retries_a_refused_event_without_delaying_the_status(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.api.refused = {("POST", EVENTS)}
        work.update(DEGRADED)
        await asyncio.sleep(0.3)
        assert work.reason == "degraded"
        assert not work.api.events
        work.api.refused = set()
        await until(lambda: bool(work.api.events))
        assert DEGRADED.problem in work.api.events[0]["message"]
        work.update(DEGRADED)
        await asyncio.sleep(0.3)
        assert len(work.api.events) == 1


async def test_logs_a_lasting_refusal_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with writing(tmp_path) as work:
        work.api.refused = {("PATCH", NODE)}
        work.update(STATUS)
        await asyncio.sleep(1)
        assert [
            record.message for record in caplog.records if record.levelno >= logging.WARNING
        ] == ["cannot write to the node: too many requests"]


async def test_writes_the_time_of_a_status_but_no_status_for_the_time_alone(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        text = work.api.node["metadata"]["annotations"][STATUS_ANNOTATION]
        assert json.loads(text)["time"].endswith("Z")
        work.watched = work.node()
        work.update(STATUS)
        await asyncio.sleep(0.1)
        assert len(work.api.patches) == 1


async def test_repeats_in_the_status_what_verify_asks(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        work.watched = work.node()
        work.update(replace(STATUS, echo="asked" * 20))
        await until(lambda: len(work.api.patches) == 2)
        text = work.api.node["metadata"]["annotations"][STATUS_ANNOTATION]
        assert json.loads(text)["echo"] == ("asked" * 20)[:64]


async def test_reports_what_the_api_server_refuses_for_long(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.api.forbidden = {("PATCH", NODE)}
        work.update(STATUS)
        await until(lambda: bool(work.link.refused(0.0)))
        assert "write to its node" in work.link.refused(0.0)
        assert work.link.refused(60.0) == ""
        work.api.forbidden = set()
        await until(lambda: work.reason == "well")
        # The server has it before the client has the answer.
        await until(lambda: work.link.refused(0.0) == "")


async def test_learns_that_it_may_write_again_with_nothing_left_to_write(tmp_path: Path) -> None:
    async with writing(tmp_path) as work:
        work.update(STATUS)
        await until(lambda: work.reason == "well")
        work.watched = work.node()
        work.api.forbidden = {("PATCH", NODE)}
        work.update(DEGRADED)
        await until(lambda: bool(work.link.refused(0.0)))
        # The node has this status: the one that was refused is no longer to be written.
        work.update(STATUS)
        await asyncio.sleep(0.1)
        assert work.link.refused(0.0)
        work.api.forbidden = set()
        await until(lambda: work.link.refused(0.0) == "")


def test_strips_the_time_from_a_status() -> None:
    text = STATUS.annotation()
    assert untimed(timed(text, datetime(2026, 1, 2, tzinfo=UTC))) == text
    assert timed(text, datetime(2026, 1, 2, tzinfo=UTC)).endswith(',"time":"2026-01-02T00:00:00Z"}')

"""A claim as the agent reads it: what is not of the API's form is no claim."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.api_server import claims_api
from divvy.kube.errors import Unreachable

_RESULT = {"request": "gpu", "driver": "divvy.gpu", "pool": "n/divvy", "device": "gpu-0-share"}


def _read(monkeypatch: pytest.MonkeyPatch, metadata: Any, result: Any) -> Any:
    answer = {
        "metadata": {"name": "train", "namespace": "team", "uid": "u", **metadata},
        "status": {"allocation": {"devices": {"results": [{**_RESULT, **result}]}}},
    }

    async def request(*_: str, **__: object) -> Any:
        return answer

    monkeypatch.setattr(claims_api, "access_from", lambda _: None)
    monkeypatch.setattr(claims_api, "AsyncClient", lambda _: SimpleNamespace(request=request))
    return asyncio.run(claims_api.ClaimsApi("n").claim("team", "train"))


def test_reads_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read(monkeypatch, {}, {"shareID": "s"})["metadata"]["uid"] == "u"


@pytest.mark.parametrize(
    ("metadata", "result", "problem"),
    [
        ({"name": -1}, {}, "metadata.name is int"),
        ({"namespace": [None]}, {}, "metadata.namespace is list"),
        ({}, {"shareID": 7}, "shareID is int"),
        ({}, {"request": {}}, "request is dict"),
    ],
)
def test_takes_nothing_of_another_form_into_its_record(
    metadata: Any, result: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is a number was saved, and ended every reconciliation from then on."""
    with pytest.raises(Unreachable, match=problem):
        _read(monkeypatch, metadata, result)

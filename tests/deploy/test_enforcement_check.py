"""What is said of memory limits before a run; it never keeps the run from its own answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from divvy.deploy import enforcement_check
from divvy.errors import CommandError
from divvy.live.cluster_reader import NotAllowed
from divvy.model import parse_cluster

LIMIT = {"limit": "auto", "action": "prevent", "enforcement": "auto"}
CLUSTER = parse_cluster(
    {
        "profiles": {"p": {"timeSlicing": {"replicas": 4, "memoryLimit": LIMIT}}},
        "pools": {"all": {"profile": "p"}},
    }
)


@pytest.mark.parametrize(
    "refusal",
    [
        CommandError("the cluster refuses /api/v1/nodes: etcdserver: request timed out"),
        NotAllowed("/api/v1/nodes", "forbidden"),
    ],
    ids=["the API server is ill", "nodes may not be read"],
)
def test_says_that_drivers_are_not_known(
    refusal: CommandError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def reading(*_: object) -> Iterator[None]:
        raise refusal
        yield

    monkeypatch.setattr(enforcement_check, "reading", reading)
    enforcement_check.warn_of_weaker_rungs(CLUSTER)
    expected = f"warning: it is not known which drivers limit memory or have MPS 3: {refusal}\n"
    assert capsys.readouterr().err == expected

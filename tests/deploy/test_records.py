"""Helm's records: read as Helm writes them, and made failed ones where a run was killed."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from divvy.deploy.records import Record, UnreadableRecord, as_interrupted, newest, record_of

RELEASE: dict[str, Any] = {
    "name": "divvy",
    "namespace": "n",
    "version": 3,
    "info": {"status": "pending-upgrade", "last_deployed": "2026-11-29T12:00:00Z"},
    "chart": {"metadata": {"name": "divvy", "annotations": {"a": "b"}}},
    "config": {"agent": {}},
    "manifest": "".join(
        f"---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: n}}\n" for kind in "AB"
    ),
    "hooks": [{"unknown": True}],
}


def secret(release: object) -> dict[str, Any]:
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    return {
        "metadata": {"name": "s", "resourceVersion": "7", "labels": {"status": "x", "name": "y"}},
        "data": {"release": base64.b64encode(packed).decode()},
    }


def test_reads_a_record() -> None:
    record = record_of(secret(RELEASE))
    assert (record.name, record.revision, record.chart) == ("divvy", 3, "divvy")
    assert record.is_pending
    assert [obj["kind"] for obj in record.objects] == ["A", "B"]


def test_makes_a_failed_record_of_a_pending_one_and_keeps_all_else() -> None:
    failed = as_interrupted(secret(RELEASE))
    record = record_of(failed)
    assert record.status == "failed"
    assert failed["metadata"]["labels"] == {"status": "failed", "name": "y"}
    # Of two that write it, one loses.
    assert failed["metadata"]["resourceVersion"] == "7"
    packed = base64.b64decode(base64.b64decode(failed["data"]["release"]))
    kept = json.loads(gzip.decompress(packed))
    assert kept["info"].pop("description") == "interrupted in pending-upgrade"
    assert kept == {**RELEASE, "info": {**RELEASE["info"], "status": "failed"}}
    assert as_interrupted(secret(RELEASE)) == failed


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": {"name": "s"}, "data": {}},
        {"metadata": {"name": "s"}, "data": {"release": "%%%"}},
        {"metadata": {"name": "s"}, "data": {"release": "YWJj"}},
        secret([]),
        secret({}),
        secret({**RELEASE, "info": None}),
        secret({**RELEASE, "version": "x"}),
        secret({**RELEASE, "chart": {"metadata": []}}),
    ],
)
def test_refuses_what_is_no_record_in_one_sentence(odd: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecord, match="Secret s "):
        record_of(odd)


def test_refuses_a_record_that_is_nested_too_deep() -> None:
    packed = base64.b64encode(gzip.compress(b"[" * 5000 + b"]" * 5000))
    deep = {"metadata": {"name": "s"}, "data": {"release": base64.b64encode(packed).decode()}}
    with pytest.raises(UnreadableRecord, match="nested too deep"):
        record_of(deep)


def test_takes_the_highest_revision_for_the_newest() -> None:
    records = [Record("d", revision, "failed", "divvy") for revision in (2, 10, 9)]
    assert newest(records) == records[1]
    assert newest([]) is None

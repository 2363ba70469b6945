"""Pages of lists in which somebody has put an object that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.kube.objects import read_object, read_page, trimmed

DEEP = b'{"metadata":{"name":"deep","namespace":"mallory"},"spec":{"a":%s},"status":{"b":1}}'
SOUND = [
    b'{"metadata":{"name":"c%d","namespace":"team"},"spec":{"x":"]}\\"["}}' % at for at in (1, 2)
]


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * levels + closing * levels


def page(*items: bytes) -> bytes:
    return b'{"kind":"L","items":[%s],"metadata":{"resourceVersion":"7","continue":"t"}}' % (
        b" , ".join(items)
    )


@pytest.mark.parametrize("levels", [980, 1000, 4900, 9990, 500_000])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_reads_the_others_beside_an_object_that_nests_deep(levels: int, place: int) -> None:
    items = [*SOUND]
    items.insert(place, DEEP % nested(levels))
    read = read_page(page(*items), "resourceclaims")
    assert [obj["metadata"]["name"] for obj in read.items if obj["metadata"]["name"] != "deep"] == [
        "c1",
        "c2",
    ]
    assert (read.version, read.more, read.skipped) == ("7", "t", {})
    assert read.items[0 if place else 1]["spec"] == {"x": ']}"['}
    deep = read.items[place]
    assert deep["status"] == {"b": 1}  # what stands behind it is read
    if levels > 1000:
        assert [*read.cut] == ["mallory/deep"]


def test_reads_deep_objects_of_objects() -> None:
    deep = DEEP % (b'{"k":' * 4900 + b"1" + b"}" * 4900)
    assert len(read_page(page(*SOUND, deep, deep), "x").items) == 4


def test_reads_bytes_that_are_no_text() -> None:
    odd = b'{"metadata":{"name":"odd"},"spec":{"a":"\xff\xfe\xed\xa0\x80"}}'
    assert [obj["metadata"]["name"] for obj in read_page(page(odd, *SOUND), "x").items] == [
        "odd",
        "c1",
        "c2",
    ]


def test_reads_an_object_without_a_number_of_5000_digits() -> None:
    number = b'{"metadata":{"name":"long","namespace":"m"},"spec":{"a":%s}}' % (b"9" * 5000)
    read = read_page(page(number, *SOUND), "x")
    assert read.items[0]["spec"] == {"a": None}
    assert [*read.cut] == ["m/long"]


@pytest.mark.parametrize(
    ("resource", "odd", "note"),
    [
        ("x", 5, "an object without a name: it is not an object"),
        ("x", None, "an object without a name: it is not an object"),
        ("x", {}, "an object without a name: metadata is missing"),
        ("x", {"metadata": {"namespace": "m"}}, "m: metadata.name is missing"),
        ("x", {"metadata": {"name": 7}}, "7: metadata.name is int"),
        ("x", {"metadata": {"name": "o", "uid": 7}}, "o: metadata.uid is int"),
        ("x", {"metadata": {"name": "o", "labels": {"a": 1}}}, "o: metadata.labels.a is int"),
        ("x", {"metadata": {"name": "o"}, "spec": []}, "o: spec is not an object"),
        ("x", {"metadata": {"name": "o"}, "spec": None, "items": 1}, ""),
        (
            "nodes",
            {
                "metadata": {"name": "o"},
                "status": {"nodeInfo": {"runningInUserNamespace": False, "architecture": "amd64"}},
            },
            "",
        ),
        ("pods", {"metadata": {"name": "o"}}, "o: spec is missing"),
        ("pods", {"metadata": {"name": "o"}, "spec": {"containers": {}}}, "o: spec.containers is"),
        (
            "resourceclaims",
            {"metadata": {"name": "o"}, "status": {"allocation": {"devices": {"results": [{}]}}}},
            "o: status.allocation.devices.results.device is missing",
        ),
        ("priorityclasses", {"metadata": {"name": "o"}, "value": True}, "o: value is bool"),
    ],
)
def test_skips_and_names_what_is_no_object_of_the_api(resource: str, odd: Any, note: str) -> None:
    sound = [{"metadata": {"name": f"s{at}"}, "spec": {}} for at in (1, 2)]
    items = [json.dumps(obj).encode() for obj in (sound[0], odd, sound[1])]
    read = read_page(page(*items), resource)
    assert [obj["metadata"]["name"] for obj in read.items if obj["metadata"]["name"] != "o"] == [
        "s1",
        "s2",
    ]
    assert len(read.skipped) == bool(note)
    assert all(text.startswith(note) for text in read.notes)


@pytest.mark.parametrize("text", [b"", b"<html>", b"[1]", b'{"items":[', b'{"items":[{]}', b"5"])
def test_raises_for_what_is_no_list(text: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        read_page(text, "x")


def test_reads_an_object_without_what_nests_deep() -> None:
    assert read_object(DEEP % nested(4900))["status"] == {"b": 1}
    assert read_object(b'{"a":[1,{"b":"]"}]}') == {"a": [1, {"b": "]"}]}
    with pytest.raises(ValueError, match="Expecting"):
        read_object(b"[" * 4900)


def test_trims_what_no_decision_reads() -> None:
    pod = {
        "metadata": {"name": "p", "managedFields": [1], "annotations": {"a": "b"}},
        "spec": {
            "hostAliases": [1],
            "containers": [{"name": "c", "env": [1], "args": ["x"], "resources": {"limits": {}}}],
            "volumes": [{"name": "v", "configMap": {"name": "large"}}],
        },
    }
    assert trimmed(pod, "pods") == {
        "metadata": {"name": "p", "annotations": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {}}}],
            "volumes": [{"name": None, "configMap": None}],
        },
    }

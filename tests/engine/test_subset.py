"""What the embedded engine declares: what it refuses, what it may delete, and that it is tested."""

from __future__ import annotations

import inspect
from pathlib import Path

import pulumi
import pytest

from divvy.engine.subset import (
    KINDS,
    OPTIONS,
    REFUSED_OPTIONS,
    Declaration,
    declaration_from,
    refusals,
    refused_record,
)
from tests.engine.test_await import SIMPLE, WORKLOADS
from tests.render.documents import objects_of
from tests.render.test_objects import IMAGE, STACKS, value


def test_tests_every_kind_in_every_step() -> None:
    assert {kind.name for kind in KINDS} == {*SIMPLE, *WORKLOADS}


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.name)
def test_supports_every_kind_of_divvys_own_stack(path: Path) -> None:
    needed = {obj["kind"] for obj in objects_of(value(path), IMAGE)}
    assert needed <= {kind.name for kind in KINDS}


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("kubernetes:core/v1:ConfigMap", False),
        ("kubernetes:apps/v1:StatefulSet", False),  # of an earlier release: destroy removes it
        ("pulumi:providers:kubernetes", False),
        ("pulumi-python:dynamic:Resource", False),
        ("pulumi:pulumi:Stack", False),
        ("kubernetes:core/v1:ConfigMapPatch", True),
        ("aws:s3/bucket:Bucket", True),
    ],
)
def test_refuses_records_that_cannot_be_deleted(kind: str, refused: bool) -> None:
    assert (refused_record(kind) is not None) is refused


def test_accepts_a_programs_component() -> None:
    own = Declaration("divvy:index:GpuCluster", "c", component=True)
    chart = Declaration("kubernetes:helm.sh/v4:Chart", "h", component=True)
    assert list(refusals([own, chart])) == ["h"]


def test_refuses_every_option_that_it_does_not_have() -> None:
    known = {*OPTIONS, *REFUSED_OPTIONS}
    assert {*inspect.signature(pulumi.ResourceOptions).parameters} <= known
    later = Declaration("kubernetes:core/v1:ConfigMap", "a", options=frozenset({"later", "parent"}))
    assert list(later.refusals()) == [
        "the option later is not supported by the embedded engine; run `pulumi up`: it uses the "
        "same state"
    ]


def test_accepts_provider_options_in_pythons_spelling() -> None:
    raw = {
        "type": "pulumi:providers:kubernetes",
        "name": "p",
        "component": False,
        "inputs": ["enable_config_map_mutable", "kubeconfig"],
        "metadata": [],
    }
    assert refusals([declaration_from(raw)]) == {}

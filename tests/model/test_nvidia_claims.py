"""Parameters that claims have for NVIDIA's driver: served, or refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from divvy.model.nvidia_claims import CLASSES, parameters_problem
from lab.cluster.paths import REPOSITORY

SLICING = {"strategy": "TimeSlicing"}


def parameters(kind: str = "GpuConfig", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **more}


def config(value: Any, *requests: str, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": value}}


@pytest.mark.parametrize("kind", ["GpuConfig", "MigDeviceConfig"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sharing": None},
        {"sharing": SLICING},
        {"sharing": {**SLICING, "timeSlicingConfig": {}}},
        {"sharing": {**SLICING, "timeSlicingConfig": {"interval": "Default"}}},
        {"sharing": {**SLICING, "timeSlicingConfig": {"interval": None}}},
    ],
)
def test_serves_what_containers_of_a_claim_do_anyway(kind: str, more: dict[str, Any]) -> None:
    assert parameters_problem([config(parameters(kind, **more))], ["gpu"]) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (parameters(sharing={"strategy": "MPS"}), "write a profile with `mps`"),
        (
            parameters(sharing={"strategy": "MPS", "mpsConfig": {"multiUser": True}}),
            "MPS is not served in a claim",
        ),
        (
            parameters(sharing={**SLICING, "timeSlicingConfig": {"interval": "Long"}}),
            "interval Long: a time slice is the whole GPU's",
        ),
        (parameters(sharing={**SLICING, "timeSlicingConfig": {"interval": []}}), "(no text)"),
        (parameters(sharing={"strategy": "Spatial"}), "the strategy Spatial is not known"),
        (parameters(sharing={**SLICING, "mpsConfig": {}}), "unknown field mpsConfig"),
        (parameters(sharing={**SLICING, "timeSlicingConfig": [1]}), "more than `interval`"),
        (parameters(sharing={**SLICING, "timeSlicingConfig": []}), "more than `interval`"),
        (parameters(sharing={**SLICING, "timeSlicingConfig": ""}), "more than `interval`"),
        (parameters(sharing=[]), "`sharing` is not an object"),
        (parameters(shares={}), "GpuConfig has the unknown field shares"),
        (parameters("VfioDeviceConfig"), "VfioDeviceConfig of resource.nvidia.com/v1beta1"),
        ({**parameters(), "apiVersion": "gpu.nvidia.com/v1alpha1"}, "of gpu.nvidia.com/v1alpha1"),
        ({}, "(no text) of (no text) is not known"),
        (None, "not an object"),
        (parameters(sharing={"strategy": "x\n" * 999}), "the strategy x x"),
    ],
)
def test_refuses_the_rest_by_name(value: Any, words: str) -> None:
    problem = parameters_problem([config(value)], ["gpu"])
    assert words in problem
    assert len(problem) < 250
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("named", "requests", "is_refused"),
    [
        ((), ["gpu"], True),
        (("gpu",), ["gpu"], True),
        (("gpu",), ["gpu/large"], True),
        (("gpu/large",), ["gpu/large"], True),
        (("gpu/small",), ["gpu/large"], False),
        (("card",), ["gpu"], False),
    ],
)
def test_judges_only_the_requests_that_parameters_name(
    named: tuple[str, ...], requests: list[str], is_refused: bool
) -> None:
    assert bool(parameters_problem([config({}, *named)], requests)) is is_refused


def test_leaves_parameters_of_other_drivers_to_these() -> None:
    others = [config({}, driver="nic.example.com"), {"requests": []}, "text", None]
    assert parameters_problem(others, ["gpu"]) == ""


def test_page_names_the_classes_and_what_is_refused() -> None:
    page = (REPOSITORY / "docs" / "coming-from.md").read_text()
    section = re.search(r"## NVIDIA's DRA driver\n(.*?)\n## ", page, re.DOTALL)
    assert section is not None
    for words in (*CLASSES, "MPS", "TimeSlicing", "`interval`", "VfioDeviceConfig", "adminAccess"):
        assert words in section[1], words

"""The texts below the schema's fields reach errors and documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from divvy.model import InvalidCluster, field_docs, parse_cluster, stack
from divvy.model.schema import cluster_schema, described_schema
from lab.cluster.section import LabSection

NO_PROFILE = {"profiles": {"whole": {}}, "pools": {"p": {}}}


@pytest.fixture
def without_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Be as installed without the source files."""
    monkeypatch.setattr(stack, "__file__", str(tmp_path / "stack.py"))
    field_docs._docs.cache_clear()
    yield
    field_docs._docs.cache_clear()


def remedies() -> list[str]:
    """Return what is said of a pool without a profile."""
    with pytest.raises(InvalidCluster) as invalid:
        parse_cluster(NO_PROFILE)
    return [f"{problem.reason} {problem.remedy}".strip() for problem in invalid.value.problems]


def test_reports_a_missing_key_with_its_description() -> None:
    assert remedies() == ["is missing what it says: The profile of its nodes"]


@pytest.mark.usefixtures("without_sources")
def test_reports_a_missing_key_without_sources() -> None:
    assert remedies() == ["is missing"]


@pytest.mark.parametrize(
    "schema", [cluster_schema(), described_schema(LabSection)], ids=["cluster", "lab"]
)
def test_describes_every_key_of_a_stack_file(schema: dict[str, Any]) -> None:
    for name, part in {"the section": schema, **schema["$defs"]}.items():
        for key, value in part.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key}"

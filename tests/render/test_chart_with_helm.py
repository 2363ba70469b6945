"""The chart as helm reads it: the same objects as the Pulumi program's, values of every kind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from divvy.render.chart import values_of
from divvy.render.objects import objects
from tests.render.charts import (
    IMAGE,
    STACKS,
    by_name,
    cluster_values,
    files_of,
    helm,
    stack_value,
    template,
    write_chart,
)

# No lab is started, but helm is built by the setup alone.
pytestmark = pytest.mark.lab


def assert_same_objects(value: dict[str, Any], folder: Path) -> None:
    """The chart carries no kubeconfig, context and image build; everything else is equal."""
    carried = values_of(value)
    expected = by_name([one for one in objects(carried, IMAGE) if one["kind"] != "Namespace"])
    found = by_name(template(write_chart(folder, files_of(value)), carried["namespace"]))
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        assert found[key] == wanted, key


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_every_stacks_chart_has_the_objects_of_the_program(path: Path, tmp_path: Path) -> None:
    assert_same_objects(stack_value(path), tmp_path / "divvy")
    lint = helm("lint", "--strict", tmp_path / "divvy")
    assert "0 chart(s) failed" in lint
    assert "WARNING" not in lint


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster_values())
def test_random_stacks_have_the_objects_of_the_program(value: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_same_objects(value, Path(folder) / "divvy")

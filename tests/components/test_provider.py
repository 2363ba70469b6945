"""The component as a Pulumi provider makes it for programs in other languages."""

import asyncio
import re
from typing import Any

import pulumi
import pytest

from divvy.components import GpuCluster, provider
from divvy.components.provider import ComponentProvider, as_in_a_file
from divvy.model import InvalidCluster


def output(value: Any, *, secret: bool = False) -> Any:
    """Return an output; it needs a running loop."""

    async def given() -> Any:
        return pulumi.Output.secret(value) if secret else pulumi.Output.from_input(value)

    return asyncio.run(given())


def construct(inputs: dict[str, Any]) -> None:
    ComponentProvider().construct("gpus", "divvy:index:GpuCluster", inputs)


def test_reads_numbers_of_the_protocol_as_a_file_has_them() -> None:
    read = as_in_a_file({"replicas": 4.0, "oversubscribe": 1.5, "devices": [0.0, "GPU-1"]})
    assert read == {"replicas": 4, "oversubscribe": 1.5, "devices": [0, "GPU-1"]}
    assert isinstance(read["replicas"], int)


def test_refuses_values_of_other_resources_and_says_where_they_are() -> None:
    later = output("divvy")
    cluster = {"context": later, "pools": {"a": {"tolerations": [{"key": later}]}}}
    reason = (
        "is an output of another resource, or a secret; it must be known as it is; write the "
        "value itself; to name the cluster, give the component a provider"
    )
    errors = f"context: {reason}\npools.a.tolerations[0].key: {reason}"
    with pytest.raises(pulumi.InputPropertiesError, match=f"^{re.escape(errors)}$"):
        construct({"cluster": cluster})
    # A program in Python makes the component itself.
    with pytest.raises(InvalidCluster, match=f"^{re.escape(errors)}$"):
        GpuCluster("gpus", {"cluster": cluster})


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({}, "divvy:cluster: is empty; a mapping"),
        ({"cluster": None}, "divvy:cluster: is empty; a mapping"),
        ({"cluster": output({}, secret=True)}, "divvy:cluster: is an output of .* or a secret"),
        ({"cluster": {"profiles": {"whole": {}}}}, "pools: is missing"),
    ],
)
def test_refuses_what_is_no_cluster(inputs: dict[str, Any], error: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=f"^{error}"):
        construct(inputs)


def test_passes_on_what_the_component_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise pulumi.RunError("plugin.image is missing")

    monkeypatch.setattr(provider, "_Cluster", refuse)
    # Of any other error, Pulumi's server shows the class or a traceback.
    with pytest.raises(pulumi.InputPropertiesError, match=r"^plugin\.image is missing$"):
        construct({"cluster": {}})


def test_makes_no_other_resource() -> None:
    with pytest.raises(pulumi.RunError, match="divvy:index:GpuCluster is expected"):
        ComponentProvider().construct("gpus", "divvy:index:Pool", {})

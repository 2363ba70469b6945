"""The component as a Pulumi provider makes it for programs in other languages."""

import asyncio
from typing import Any

import pulumi
import pytest

from divvy.components import provider
from divvy.components.provider import ComponentProvider, as_in_a_file


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


def test_refuses_a_value_of_another_resource_and_says_where_it_is() -> None:
    later = output("divvy")
    with pytest.raises(pulumi.InputPropertiesError, match=r"^pools\.a\.profile: is an output of"):
        construct({"cluster": {"pools": {"a": {"profile": later}}}})


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

    monkeypatch.setattr(provider, "GpuCluster", refuse)
    # Of any other error, Pulumi's server shows the class or a traceback.
    with pytest.raises(pulumi.InputPropertiesError, match=r"^plugin\.image is missing$"):
        construct({"cluster": {}})


def test_makes_no_other_resource() -> None:
    with pytest.raises(pulumi.RunError, match="divvy:index:GpuCluster is expected"):
        ComponentProvider().construct("gpus", "divvy:index:Pool", {})

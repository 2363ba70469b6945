"""The component as a Pulumi provider makes it for programs in other languages."""

import asyncio

import pulumi
import pytest

from divvy.components.provider import ComponentProvider, as_in_a_file


def test_reads_numbers_of_the_protocol_as_a_file_has_them() -> None:
    read = as_in_a_file({"replicas": 4.0, "oversubscribe": 1.5, "devices": [0.0, "GPU-1"]})
    assert read == {"replicas": 4, "oversubscribe": 1.5, "devices": [0, "GPU-1"]}
    assert isinstance(read["replicas"], int)


def test_refuses_a_value_of_another_resource() -> None:
    # An output belongs to a loop, of which an earlier test may have left none.
    asyncio.set_event_loop(asyncio.new_event_loop())
    later = pulumi.Output.from_input("divvy")
    with pytest.raises(pulumi.InputPropertyError, match="output of another resource"):
        ComponentProvider().construct(
            "gpus", "divvy:index:GpuCluster", {"cluster": {"pools": {"a": {"profile": later}}}}
        )


def test_makes_no_other_resource() -> None:
    with pytest.raises(pulumi.RunError, match="divvy:index:GpuCluster alone"):
        ComponentProvider().construct("gpus", "divvy:index:Pool", {})

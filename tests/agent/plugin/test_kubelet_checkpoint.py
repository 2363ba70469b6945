"""The kubelet's checkpoint: a form that is not known is never taken for nothing held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.agent.plugin.kubelet_checkpoint import (
    UnreadableCheckpoint,
    allocate_answers,
    recorded_holders,
)


def checkpoint(**changed: Any) -> bytes:
    entry = {"PodUID": "uid", "ContainerName": "main", "ResourceName": "nvidia.com/gpu", **changed}
    return json.dumps({"Data": {"PodDeviceEntries": [entry]}}).encode()


@pytest.mark.parametrize("device_ids", [{"0": ["GPU-0"], "-1": None}, ["GPU-0"]])
def test_lists_devices_by_numa_node_or_plainly(device_ids: Any) -> None:
    (holder,) = recorded_holders(checkpoint(DeviceIDs=device_ids))
    assert holder.device_id == "GPU-0"


@pytest.mark.parametrize(
    "changed",
    [
        {"DeviceIDs": "GPU-0"},
        {"DeviceIDs": {"0": "GPU-0"}},
        {"DeviceIDs": {"0": [["GPU-0"]]}},
        {"DeviceIDs": ["GPU-0"], "ResourceName": ["nvidia.com/gpu"]},
        {"DeviceIDs": ["GPU-0"], "ContainerName": None},
    ],
)
def test_treats_another_checkpoint_format_as_unknown(changed: dict[str, Any]) -> None:
    with pytest.raises(UnreadableCheckpoint):
        recorded_holders(checkpoint(**changed))


def test_keeps_allocate_responses_by_container_and_resource() -> None:
    assert allocate_answers(checkpoint(AllocResp="Kgk=")) == {
        ("uid", "main", "nvidia.com/gpu"): b"*\t"
    }
    assert allocate_answers(checkpoint(AllocResp=None)) == {}


@pytest.mark.parametrize("answer", ["no base64!", 5, ["Kgk="]])
def test_treats_an_allocate_response_of_another_form_as_unknown(answer: Any) -> None:
    with pytest.raises(UnreadableCheckpoint):
        allocate_answers(checkpoint(AllocResp=answer))
    # The kubelet writes the key always: without it, the form is another.
    with pytest.raises(UnreadableCheckpoint):
        allocate_answers(checkpoint())

"""The kubelet's own checkpoint of device allocations, as values.

Format: pkg/kubelet/cm/devicemanager/checkpoint of Kubernetes 1.20 to 1.36. The device manager
writes it after each Allocate and each device list, and an entry leaves it only when the kubelet
has its pods from the API and the pod is not among them: it is never too short, and may be too long.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from divvy.agent.gpu.holders import Holder


class UnreadableCheckpoint(Exception):
    """The kubelet's checkpoint is missing or of a form we do not know: why."""


def recorded_holders(content: bytes) -> tuple[Holder, ...]:
    """Return the allocations of a checkpoint; raises UnreadableCheckpoint."""
    try:
        data = json.loads(content)["Data"]
        return tuple(
            Holder(
                "",
                _text(entry["ContainerName"]),
                _text(entry["ResourceName"]),
                device_id,
                _text(entry["PodUID"]),
            )
            for entry in data["PodDeviceEntries"] or ()
            for device_id in _device_ids(entry["DeviceIDs"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unknown_form(error) from error


def allocate_answers(content: bytes) -> Mapping[tuple[str, str, str], bytes]:
    """Return what Allocate answered: (pod UID, container, resource) → a ContainerAllocateResponse.

    It is what the container is made with whenever it starts. Raises UnreadableCheckpoint.
    """
    try:
        return {
            (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]): base64.b64decode(
                entry["AllocResp"], validate=True
            )
            for entry in json.loads(content)["Data"]["PodDeviceEntries"] or ()
            if entry["AllocResp"]
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unknown_form(error) from error


def _unknown_form(error: Exception) -> UnreadableCheckpoint:
    return UnreadableCheckpoint(
        f"the kubelet's checkpoint has an unknown form ({type(error).__name__}: {error})"
    )


def _device_ids(value: Any) -> Iterator[str]:
    """Yield device IDs: by NUMA node since Kubernetes 1.20."""
    groups = value.values() if isinstance(value, Mapping) else [value]
    for group in groups:
        # Of a text, its letters would be taken for devices, and what is held for free.
        if group is not None and not isinstance(group, list):
            raise TypeError(f"device IDs are {group!r}")
        yield from map(_text, group or ())


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value

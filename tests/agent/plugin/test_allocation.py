"""What a container is told of its share."""

import re
from dataclasses import replace

import pytest

from divvy.agent.inject.share import MAX_DEVICES, share_name
from divvy.agent.plugin.allocation import Refused, allocated_uuids, device_shares
from divvy.model.sharing import DeviceShare, Sharing, limits_text
from lab.cluster.paths import REPOSITORY
from tests.agent.devices import limited


def test_adds_up_the_sizes_of_two_replicas() -> None:
    resource = limited(2, 4, 3000, "share")
    ids = ["GPU-1::2", "GPU-0::3", "GPU-1::0"]
    name = share_name(ids)
    assert device_shares(resource, ids) == (
        DeviceShare("GPU-0", resource.sharing, f"{name}-0"),
        DeviceShare("GPU-1", replace(resource.sharing, memory_mib=6000, weight=50), f"{name}-1"),
    )
    assert share_name(reversed(ids)) == name
    assert share_name(["GPU-1::2"]) != name


def test_writes_no_page_without_compute() -> None:
    (share,) = device_shares(limited(1, 3, 100), ["GPU-0::1"])
    assert (share.memory_mib, share.sharing.weight, share.page) == (100, 33, "-")
    assert limits_text([share]) == (
        "divvy-share 1\ndevice GPU-0 memory 104857600 compute free weight 33 page - "
        "oversubscribed no\n"
    )


def test_refuses_more_devices_than_the_limiter_knows() -> None:
    """It would understand none of the limits, and refuse the container everything."""
    source = (REPOSITORY / "plugin_image/limiter/share/share.h").read_text()
    assert re.findall(r"#define MAX_DEVICES (\d+)", source) == [str(MAX_DEVICES)]
    resource = limited(MAX_DEVICES + 1, 2, 3000)
    ids = [f"GPU-{index}::0" for index in range(MAX_DEVICES + 1)]
    assert len(allocated_uuids(resource, [*ids[1:], "GPU-1::1"])) == MAX_DEVICES
    with pytest.raises(Refused, match="of 17 devices requested, at most 16 per container where"):
        allocated_uuids(resource, ids)
    assert len(allocated_uuids(replace(resource, sharing=Sharing(2)), ids)) == 17

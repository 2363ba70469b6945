"""The longest list of devices that a stack file can ask for is one that the kubelet takes."""

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.plugin.device_plugin import _device
from divvy.agent.plugin.inventory import Device
from divvy.model.profile import MAX_REPLICAS

GRPC_LIMIT = 4 * 1024 * 1024  # of a received message, unless set otherwise
GPUS, MIG_DEVICES = 16, 7


def longest(replicas: int) -> int:
    uuids = [f"MIG-{number:08x}-0000-0000-0000-000000000000" for number in range(MIG_DEVICES)]
    devices = [
        Device(f"{uuid}::{replica}", uuid, uuid, unhealthy="lost", numa=1)
        for uuid in uuids * GPUS
        for replica in range(replicas)
    ]
    message = api.ListAndWatchResponse(devices=[_device(device) for device in devices])
    return int(message.ByteSize())


def test_fits_the_most_shares_of_the_most_devices_into_a_message() -> None:
    assert longest(MAX_REPLICAS) < GRPC_LIMIT < longest(MAX_REPLICAS * 5 // 4)

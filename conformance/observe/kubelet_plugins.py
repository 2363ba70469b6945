"""Device plugins beside the one under test, as the kubelet's folder shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.implementation import DIVVY, Implementation
from conformance.observe.identities import physical
from conformance.skips import not_made

# Plugins for NVIDIA's GPUs, by the sockets that they make: Divvy's, NVIDIA's own and its forks,
# GKE's, Volcano's, Alibaba Cloud's, Tencent's.
_OF_GPUS = re.compile(r"(divvy|nvidia|hami|volcano|aliyungpushare|vcuda|vcore|vmemory).*[.]sock")
# Runs in the agent's pod, where the kubelet's folder is mounted. A socket without a
# listener is left over from a plugin that is gone.
_LOOK = """
import json, os, pathlib, socket
from divvy.agent.regular_file import read_regular_file
folder = "/var/lib/kubelet/device-plugins"
def listens(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(path)
        except (BlockingIOError, TimeoutError):
            return True
        except OSError:
            return False
    return True
sockets = [name for name in os.listdir(folder) if name.endswith(".sock")]
serving = sorted(name for name in sockets if listens(f"{folder}/{name}"))
try:
    checkpoint = json.loads(read_regular_file(pathlib.Path(folder, "kubelet_internal_checkpoint")))
    registered = checkpoint["Data"]["RegisteredDevices"] or {}
except (OSError, ValueError, LookupError, TypeError):
    registered = None
print(json.dumps({"sockets": serving, "registered": registered}))
"""


@dataclass(frozen=True)
class KubeletPlugins:
    """Sockets on which a plugin listens, and the devices of each resource that is registered.

    ``registered`` is None if the kubelet has not written it down.
    """

    sockets: Sequence[str]
    registered: Mapping[str, Sequence[str]] | None


def read_plugins(target: ClusterUnderTest, node: str) -> KubeletPlugins | None:
    """Read the kubelet's folder of device plugins; None without an agent."""
    text = target.enter(node, "python3 -c %s", _LOOK)
    return None if text is None else KubeletPlugins(**json.loads(text))


def only_ours(
    plugins: KubeletPlugins,
    resources: Collection[str],
    devices: Collection[str],
    implementation: Implementation = DIVVY,
) -> Verdict:
    """Judge who serves a node's GPUs: the implementation under test, and no other.

    Under the names of its ``resources`` there must be nothing but the driver's ``devices``. Not
    made where nothing is amiss and the kubelet's list of them cannot be read.
    """
    amiss = [
        f"a plugin listens on {name}"
        for name in plugins.sockets
        if _OF_GPUS.fullmatch(name) and not re.fullmatch(implementation.sockets, name)
    ]
    for resource in sorted(resources):
        listed = (plugins.registered or {}).get(resource) or ()
        foreign = sorted({device_id for device_id in listed if physical(device_id) not in devices})
        if foreign:
            amiss.append(f"{resource} has devices that are none of the driver's: {foreign[0]}")
    if resources and not amiss and plugins.registered is None:
        not_made("the kubelet's checkpoint of registered devices cannot be read")
    alone = f"{implementation.title} alone"
    return alone, "; ".join(amiss) or alone

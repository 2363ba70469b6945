"""Faults that people meet, each with the checks that must name it."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from plugin_image.build import push_context
from tests.conformance.scene import Scene

A100, H100, T4 = "gpu-a100", "gpu-h100", "gpu-t4"
Options = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is wrong, how it is brought about, and which checks have to fail."""

    title: str
    pool: str
    checks: tuple[str, ...]
    inflict: Callable[[Scene], AbstractContextManager[Options]]


def _with_file(change: Callable[[dict[str, Any]], None]) -> Any:
    """Verify against a stack file that differs from what is deployed."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        cluster = copy.deepcopy(scene.deployed.cluster)
        change(cluster)
        yield {"cluster": cluster}

    return inflict


def _with_cdi(node: str, change: Callable[[Scene, dict[str, Any]], None]) -> Any:
    """Change the CDI specification on a node."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        before = scene.read_cdi(node)
        after = copy.deepcopy(before)
        change(scene, after)
        with scene.kept_cdi(node, after):
            yield {}
        scene.write_cdi(node, before)

    return inflict


def _other_gpus(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["model"] = "H200-141GB"


def _other_driver(cluster: dict[str, Any]) -> None:
    cluster["driver"]["version"] = "570.133.20"


def _fewer_shares(cluster: dict[str, Any]) -> None:
    cluster["profiles"]["slice-4"] = {"timeSlicing": {"replicas": 3}}


def _without_libraries(_: Scene, spec: dict[str, Any]) -> None:
    mounts = spec["containerEdits"]["mounts"]
    mounts[:] = [
        mount
        for mount in mounts
        if not any(name in mount["containerPath"] for name in ("libcuda", "nvidia-smi"))
    ]


def _second_gpu(_: Scene, spec: dict[str, Any]) -> None:
    nodes = [device["containerEdits"]["deviceNodes"] for device in spec["devices"]]
    nodes[0] += copy.deepcopy(nodes[1])
    nodes[1][:] = copy.deepcopy(nodes[0])


def _same_gpu(_: Scene, spec: dict[str, Any]) -> None:
    for device in spec["devices"]:
        device["containerEdits"] = copy.deepcopy(spec["devices"][0]["containerEdits"])


def _largest_slice(scene: Scene, spec: dict[str, Any]) -> None:
    listed = scene.deployed.on_node(A100, "nvidia-smi", "-L").splitlines()
    largest = next(line for line in listed if "MIG 3g.20gb" in line)
    uuid = largest.rpartition("UUID: ")[2].rstrip(")")
    devices = {device["name"]: device for device in spec["devices"]}
    for name, device in devices.items():
        if name.startswith("MIG-"):
            device["containerEdits"] = copy.deepcopy(devices[uuid]["containerEdits"])


@contextmanager
def _no_agents(scene: Scene) -> Iterator[Options]:
    path = "/spec/template/spec/nodeSelector/divvy.test~1nowhere"
    nodes = (A100, H100, T4)
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"divvy.test/nowhere": "yes"}}}}}
    scene.patch_agents("strategic", selector)
    try:
        scene.deployed.until(lambda: not any(_has_agent(scene, node) for node in nodes))
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {}, 60)
        yield {}
    finally:
        scene.patch_agents("json", [{"op": "remove", "path": path}])
        scene.deployed.until(lambda: all(_has_agent(scene, node) for node in nodes), 60)
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)


def _has_agent(scene: Scene, node: str) -> bool:
    try:
        return bool(scene.deployed.agent(node))
    except AssertionError:
        return False


@contextmanager
def _strange_resource(scene: Scene) -> Iterator[Options]:
    path = "/status/capacity/nvidia.com~1vgpu"
    _patch_status(scene, [{"op": "add", "path": path, "value": "3"}])
    name = "nvidia.com/vgpu"
    try:
        scene.deployed.until(lambda: scene.deployed.offered(T4).get(name) == 3)
        yield {}
    finally:
        _patch_status(scene, [{"op": "remove", "path": path}])
        scene.deployed.until(lambda: name not in scene.deployed.offered(T4))


def _patch_status(scene: Scene, patch: list[dict[str, str]]) -> None:
    scene.deployed.lab.kubectl(
        "patch", "node", T4, "--subresource=status", "--type=json", "--patch", json.dumps(patch)
    )


@contextmanager
def _several_shares(scene: Scene) -> Iterator[Options]:
    before = copy.deepcopy(scene.deployed.cluster)
    sharing = scene.deployed.cluster["profiles"]["slice-4"]["timeSlicing"]
    sharing["failRequestsGreaterThanOne"] = False
    scene.deployed.up()
    try:
        yield {"cluster": before}
    finally:
        scene.deployed.cluster = before
        scene.deployed.up()


@contextmanager
def _bad_math(scene: Scene) -> Iterator[Options]:
    scene.driver(H100, "fault", "bad-math", "all")
    try:
        yield {}
    finally:
        scene.driver(H100, "fault", "clear", "all")


@contextmanager
def _visible_devices(scene: Scene) -> Iterator[Options]:
    context = scene.folder / "visible"
    context.mkdir()
    text = f"FROM {scene.image}\nENV NVIDIA_VISIBLE_DEVICES=all\n"
    (context / "Containerfile").write_text(text)
    registry, _, _ = scene.image.partition("/")
    image = push_context(context, registry, "divvy/visible", scene.image)
    yield {"image": image}


FAULTS = (
    Fault("the agents are gone", "training", ("NODE-01", "PLUG-02", "OBS-01"), _no_agents),
    Fault("the node has other GPUs than the stack file says", "training",
          ("NODE-02", "ISO-06"), _with_file(_other_gpus)),
    Fault("the node's driver is another version", "training",
          ("NODE-03",), _with_file(_other_driver)),
    Fault("another plugin offers a resource of its own", "notebooks",
          ("PLUG-01",), _strange_resource),
    Fault("the node offers more shares than the stack file says", "notebooks",
          ("PLUG-03", "PLUG-06"), _with_file(_fewer_shares)),
    Fault("a container gets two shares", "notebooks", ("PLUG-04",), _several_shares),
    Fault("the CDI specification lacks libcuda and nvidia-smi", "training",
          ("WORK-01", "WORK-03"), _with_cdi(H100, _without_libraries)),
    Fault("the GPUs compute wrongly", "training", ("WORK-02",), _bad_math),
    Fault("the environment names all GPUs to a pod that asked for none", "training",
          ("ISO-01",), _visible_devices),
    Fault("the CDI specification leaks a second GPU", "training",
          ("ISO-02",), _with_cdi(H100, _second_gpu)),
    Fault("the CDI specification names one GPU for two devices", "training",
          ("ISO-03",), _with_cdi(H100, _same_gpu)),
    Fault("the CDI specification names one GPU for the shares of two", "notebooks",
          ("ISO-04",), _with_cdi(T4, _same_gpu)),
    Fault("small MIG devices are given a larger slice", "research",
          ("ISO-05", "ISO-06"), _with_cdi(A100, _largest_slice)),
)  # fmt: skip

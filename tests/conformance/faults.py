"""Faults that people meet, each with the checks that must name it."""

import copy
import json
import threading
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


def _gone_library(_: Scene, spec: dict[str, Any]) -> None:
    for mount in spec["containerEdits"]["mounts"]:
        if mount["containerPath"].endswith("libcuda.so.1"):
            mount["hostPath"] += ".gone"


def _unnamed_gpu(_: Scene, spec: dict[str, Any]) -> None:
    """Let each GPU's containers open the other one, under a name that nobody looks for."""
    nodes = [
        copy.deepcopy(device["containerEdits"]["deviceNodes"][0]) for device in spec["devices"]
    ]
    for device, node in zip(spec["devices"], reversed(nodes), strict=True):
        device["containerEdits"]["deviceNodes"].append({**node, "path": "/dev/other"})


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
    return _agent_id(scene, node) is not None


def _agent_id(scene: Scene, node: str) -> str | None:
    try:
        return str(scene.deployed.agent(node)["metadata"]["uid"])
    except AssertionError:
        return None


@contextmanager
def _no_pod_resources(scene: Scene) -> Iterator[Options]:
    _move_pod_resources(scene, "/run/nothing-is-here")
    try:
        yield {}
    finally:
        _move_pod_resources(scene, "/var/lib/kubelet/pod-resources")


def _move_pod_resources(scene: Scene, folder: str) -> None:
    nodes = (A100, H100, T4)
    before = {node: _agent_id(scene, node) for node in nodes}
    volumes = [{"name": "pod-resources", "hostPath": {"path": folder}}]
    scene.patch_agents("strategic", {"spec": {"template": {"spec": {"volumes": volumes}}}})
    scene.deployed.until(
        lambda: all(_agent_id(scene, node) not in (None, before[node]) for node in nodes), 90
    )
    scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)


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


@contextmanager
def _mended_requests(scene: Scene) -> Iterator[Options]:
    """Let an admission policy take wrong requests away before the API server looks at them."""
    group = "admissionregistration.k8s.io/v1"
    name = "mend-requests"
    resources = "/spec/containers/0/resources"
    policy = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                 "operations": ["CREATE"]},
            ]
        },
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": f'[JSONPatch{{op: "remove", path: "{resources}"}}]'},
            }
        ],
    }  # fmt: skip
    kinds = {
        "MutatingAdmissionPolicy": policy,
        "MutatingAdmissionPolicyBinding": {"policyName": name},
    }
    lab = scene.deployed.lab
    lab.apply(
        *(
            {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, spec in kinds.items()
        )
    )
    wrong = lab.pod("wrong", "true", container={"resources": {"limits": {"nvidia.com/gpu": "0.5"}}})
    try:
        # The API server takes a moment to take note of a policy.
        scene.deployed.until(lambda: _is_admitted(scene, wrong))
        yield {}
    finally:
        for kind in kinds:
            lab.kubectl("delete", kind.lower(), name)
        scene.deployed.until(lambda: not _is_admitted(scene, wrong))


def _is_admitted(scene: Scene, pod: dict[str, Any]) -> bool:
    done = scene.deployed.lab.try_kubectl(
        "create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod)
    )
    return done.returncode == 0


@contextmanager
def _killed_pods(scene: Scene) -> Iterator[Options]:
    """End what runs on a node's GPUs whenever anything happens to the node."""
    with quick_recovery(scene):
        over = threading.Event()
        killer = threading.Thread(target=_kill_at_changes, args=(scene, H100, over))
        killer.start()
        try:
            yield {}
        finally:
            over.set()
            killer.join()


@contextmanager
def quick_recovery(scene: Scene) -> Iterator[None]:
    """Offer a GPU again soon after an error: longer than a kubelet's status period, no more."""
    before = copy.deepcopy(scene.deployed.cluster)
    scene.deployed.cluster["health"] = {"recoverAfter": "12s"}
    scene.deployed.up()
    try:
        yield
    finally:
        scene.deployed.cluster = before
        scene.deployed.up()


def _kill_at_changes(scene: Scene, node: str, over: threading.Event) -> None:
    # The pattern does not match the command line that it stands in.
    kill = (
        "for each in /proc/[0-9]*; do grep -qs 'ech[o] computed' $each/cmdline"
        " && kill -9 ${each#/proc/}; done; true"
    )
    known = _signature(scene, node)
    while not over.wait(0.2):
        now = _signature(scene, node)
        if now != known:
            scene.deployed.on_node(node, "sh", "-c", kill)
        known = now


def _signature(scene: Scene, node: str) -> tuple[object, ...]:
    """Return what any of the disruptions changes first."""
    kubelets = scene.deployed.on_node(
        node, "sh", "-c", "grep -lx kubelet /proc/[0-9]*/comm 2>/dev/null; true"
    )
    found = scene.deployed.lab.get("node", node)["metadata"]
    profile = found["labels"].get("divvy.gpu/profile")
    state = json.loads(found["annotations"].get("divvy.gpu/status", "{}")).get("state")
    return (kubelets, profile, state, _agent_id(scene, node))


FAULTS = (
    Fault("the agents are gone", "training", ("NODE-01", "PLUG-02", "OBS-01"), _no_agents),
    Fault("the node has other GPUs than the stack file says", "training",
          ("NODE-02", "ISO-06"), _with_file(_other_gpus)),
    Fault("the node's driver is another version", "training",
          ("NODE-03",), _with_file(_other_driver)),
    Fault("the CDI specification names a library that is gone", "training",
          ("NODE-04", "WORK-01"), _with_cdi(H100, _gone_library)),
    Fault("another plugin offers a resource of its own", "notebooks",
          ("PLUG-01",), _strange_resource),
    Fault("the node offers more shares than the stack file says", "notebooks",
          ("PLUG-03", "PLUG-06"), _with_file(_fewer_shares)),
    Fault("a container gets two shares", "notebooks", ("PLUG-04",), _several_shares),
    Fault("something mends wrong requests before they are looked at", "training",
          ("PLUG-05",), _mended_requests),
    Fault("the CDI specification lacks libcuda and nvidia-smi", "training",
          ("PLUG-07", "WORK-01", "WORK-03"), _with_cdi(H100, _without_libraries)),
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
          ("ISO-05", "ISO-06", "ISO-08"), _with_cdi(A100, _largest_slice)),
    Fault("a second GPU is in the container under another name", "training",
          ("ISO-07",), _with_cdi(H100, _unnamed_gpu)),
    Fault("the agent cannot ask the kubelet who holds what", "training",
          ("OBS-02", "OBS-03"), _no_pod_resources),
    Fault("pods on GPUs are ended by whatever happens to their node", "training",
          ("DISR-01", "DISR-02", "DISR-03", "DISR-04"), _killed_pods),
)  # fmt: skip

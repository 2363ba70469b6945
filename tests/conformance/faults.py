"""Faults that people meet, each with the checks that must name it."""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conformance.scene import Scene
from tests.deployment import NAMESPACE

A100, H100, T4 = "gpu-a100", "gpu-h100", "gpu-t4"
Options = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is wrong, how it is brought about, and which checks have to fail.

    ``pool`` limits the run to the nodes of one.
    """

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


def _more_nodes(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["count"] = 2


def _more_gpus(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["gpus"] = 3


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


def _swapped_gpus(_: Scene, spec: dict[str, Any]) -> None:
    """Give each GPU's pods the other GPU: every pod has one, as it should."""
    first, second = spec["devices"][:2]
    first["containerEdits"], second["containerEdits"] = (
        second["containerEdits"],
        first["containerEdits"],
    )


def _former_device(_: Scene, spec: dict[str, Any]) -> None:
    """Name a MIG device that is no more instead of one that is there."""
    mig = next(device for device in spec["devices"] if device["name"].startswith("MIG-"))
    mig["name"] = "MIG-00000000-0000-0000-0000-000000000000"


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


def _writable_sockets(_: Scene, spec: dict[str, Any]) -> None:
    for mount in spec["containerEdits"]["mounts"]:
        if mount["containerPath"] == "/run/nvidia-persistenced":
            mount["options"].remove("ro")


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
    volumes = [{"name": "pod-resources", "hostPath": {"path": folder}}]
    scene.patch_agents("strategic", {"spec": {"template": {"spec": {"volumes": volumes}}}})
    scene.replace_agents()
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


# Gives all GPUs to a container that sets NVIDIA_VISIBLE_DEVICES=all, as NVIDIA's runtime does.
_NVIDIA_RUNTIME = """#!/usr/bin/python3
import json, os, sys
arguments = sys.argv
if "create" in arguments and "--bundle" in arguments:
    path = arguments[arguments.index("--bundle") + 1] + "/config.json"
    config = json.load(open(path))
    if "NVIDIA_VISIBLE_DEVICES=all" in config["process"].get("env", ()):
        spec = json.load(open("/run/cdi/divvy.gpu-gpu.json"))
        edits = [spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])]
        linux = config["linux"]
        for node in (node for edit in edits for node in edit.get("deviceNodes", ())):
            about = os.stat(node.get("hostPath", node["path"]))
            number = {"major": os.major(about.st_rdev), "minor": os.minor(about.st_rdev)}
            device = {"path": node["path"], "type": "c", "fileMode": 0o666, **number}
            if device not in linux.setdefault("devices", []):
                linux["devices"].append(device)
            allow = {"allow": True, "type": "c", "access": "rw", **number}
            linux["resources"].setdefault("devices", []).append(allow)
        for mount in (mount for edit in edits for mount in edit.get("mounts", ())):
            config["mounts"].append(
                {"source": mount["hostPath"], "destination": mount["containerPath"],
                 "type": "bind", "options": ["ro", "rbind", "nosuid", "nodev"]}
            )
        json.dump(config, open(path, "w"))
os.execv("/run/runc-itself", ["runc", *arguments[1:]])
"""


@contextmanager
def _uncorrectable_error(scene: Scene) -> Iterator[Options]:
    # The agent withdraws the GPU for the XID that comes with it.
    scene.driver(H100, "fault", "ecc", "1")
    try:
        yield {}
    finally:
        scene.driver(H100, "fault", "clear", "1")
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 90)


@contextmanager
def _one_bad_gpu(scene: Scene) -> Iterator[Options]:
    scene.driver(H100, "fault", "bad-math", "1")
    try:
        yield {}
    finally:
        scene.driver(H100, "fault", "clear", "1")


@contextmanager
def _nvidia_runtime(scene: Scene) -> Iterator[Options]:
    script = "cp /usr/bin/runc /run/runc-itself; cat > /run/runc-nvidia; chmod 755 /run/runc-nvidia"
    mount = "mount --bind /run/runc-nvidia /usr/bin/runc"
    scene.on_node_with(H100, _NVIDIA_RUNTIME, "sh", "-c", f"{script}; {mount}")
    try:
        yield {}
    finally:
        scene.deployed.on_node(H100, "umount", "/usr/bin/runc")


@contextmanager
def _other_module(scene: Scene) -> Iterator[Options]:
    version = "/run/nvidia/driver/proc/driver/nvidia/version"
    before = scene.deployed.on_node(H100, "cat", version)
    scene.on_node_with(H100, before.replace("550.", "570."), "sh", "-c", f"cat > {version}")
    try:
        yield {}
    finally:
        scene.on_node_with(H100, before, "sh", "-c", f"cat > {version}")


@contextmanager
def _other_numa(scene: Scene) -> Iterator[Options]:
    """Put a GPU behind another NUMA node than the one that the kubelet was told."""
    folder = "/run/nvidia/driver/sys/bus/pci/devices"
    first = f"{scene.deployed.on_node(H100, 'ls', folder).split()[0]}/numa_node"
    before = scene.deployed.on_node(H100, "cat", f"{folder}/{first}")
    scene.on_node_with(H100, "7\n", "sh", "-c", f"cat > {folder}/{first}")
    try:
        yield {}
    finally:
        scene.on_node_with(H100, before, "sh", "-c", f"cat > {folder}/{first}")


@contextmanager
def _no_fabric(scene: Scene) -> Iterator[Options]:
    scene.driver(H100, "fault", "no-fabric", "1")
    try:
        yield {}
    finally:
        scene.driver(H100, "fault", "clear", "1")


@contextmanager
def _dra_driver(scene: Scene) -> Iterator[Options]:
    lab, name = scene.deployed.lab, "of-another-driver"
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": H100,
        "pool": {"name": H100, "generation": 1, "resourceSliceCount": 1},
        "devices": [device],
    }
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    lab.apply({**kind, "metadata": {"name": name}, "spec": spec})
    try:
        yield {}
    finally:
        lab.kubectl("delete", "resourceslice", name)


@contextmanager
def _misled_service(scene: Scene) -> Iterator[Options]:
    """Let the agents' Service select pods that are not there."""
    lab, path = scene.deployed.lab, "/spec/selector/divvy.test~1nowhere"

    def patch(change: dict[str, str]) -> None:
        text = json.dumps([{**change, "path": path}])
        lab.kubectl(
            "patch", "service/divvy-agent", f"-n={NAMESPACE}", "--type=json", "--patch", text
        )

    def endpoints() -> list[Any]:
        label = "--selector=kubernetes.io/service-name=divvy-agent"
        found = lab.get("endpointslices", f"-n={NAMESPACE}", label)["items"]
        return [one for each in found for one in each.get("endpoints") or []]

    patch({"op": "add", "value": "yes"})
    try:
        scene.deployed.until(lambda: not endpoints())
        yield {}
    finally:
        patch({"op": "remove"})
        scene.deployed.until(lambda: bool(endpoints()))


@contextmanager
def _corrected_requests(scene: Scene) -> Iterator[Options]:
    """Let an admission policy take wrong requests away before the API server looks at them."""
    group = "admissionregistration.k8s.io/v1"
    name = "correct-requests"
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
    # The pattern does not match the command line that it stands in.
    kill = (
        "for each in /proc/[0-9]*; do grep -qs 'ech[o] computed' $each/cmdline"
        " && kill -9 ${each#/proc/}; done; true"
    )
    with _at_changes(scene, H100, kill):
        yield {}


@contextmanager
def _destroyed_mig_devices(scene: Scene) -> Iterator[Options]:
    """Destroy a node's MIG devices, as another tool would, whenever anything happens to it."""
    with _at_changes(scene, A100, "nvidia-smi mig -dci; nvidia-smi mig -dgi; true"):
        yield {}


@contextmanager
def _at_changes(scene: Scene, node: str, script: str) -> Iterator[None]:
    """Run a shell script on a node whenever anything happens to the node."""
    over = threading.Event()

    def watch() -> None:
        known = _signature(scene, node)
        while not over.wait(0.2):
            now = _signature(scene, node)
            if now != known:
                scene.deployed.on_node(node, "sh", "-c", script)
            known = now

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


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
    # Not PLUG-02, which waits a minute for allocatable: it is seen where a GPU is missing.
    Fault("the agents are gone", "training", ("NODE-01", "OBS-01"), _no_agents),
    Fault("the node has other GPUs than the stack file says", "training",
          ("NODE-02", "ISO-06"), _with_file(_other_gpus)),
    Fault("the node's driver is another version", "training",
          ("NODE-03",), _with_file(_other_driver)),
    Fault("the stack file has a node more than the pool", "training",
          ("NODE-05",), _with_file(_more_nodes)),
    Fault("the driver's libraries were updated and its kernel module was not", "training",
          ("NODE-06",), _other_module),
    Fault("a GPU has an uncorrectable memory error", "training",
          ("NODE-07",), _uncorrectable_error),
    Fault("Fabric Manager has not set up the NVLink fabric of a GPU", "training",
          ("NODE-08",), _no_fabric),
    Fault("a GPU is at another NUMA node than the kubelet was told", "training",
          ("PLUG-11",), _other_numa),
    Fault("the CDI specification names a MIG device of before", "research",
          ("NODE-04",), _with_cdi(A100, _former_device)),
    Fault("the node offers fewer GPUs than the stack file says", "training",
          ("PLUG-02", "PLUG-03", "PLUG-06", "PLUG-09", "ISO-03", "WORK-07"),
          _with_file(_more_gpus)),
    Fault("a DRA driver offers the node's GPUs too", "training", ("PLUG-10",), _dra_driver),
    Fault("one GPU of two computes wrongly", "training", ("WORK-02", "WORK-07"), _one_bad_gpu),
    Fault("pods get another GPU than the one that they were allocated", "training",
          ("ISO-13",), _with_cdi(H100, _swapped_gpus)),
    Fault("the agents' Service leads nowhere", "training", ("OBS-04",), _misled_service),
    Fault("the CDI specification names a library that is gone", "training",
          ("NODE-04", "WORK-01"), _with_cdi(H100, _gone_library)),
    Fault("another plugin offers a resource of its own", "notebooks",
          ("PLUG-01",), _strange_resource),
    Fault("the node offers more shares than the stack file says", "notebooks",
          ("PLUG-03", "PLUG-06"), _with_file(_fewer_shares)),
    Fault("a container gets two replicas", "notebooks", ("PLUG-04",), _several_shares),
    Fault("a webhook corrects wrong requests before they are validated", "training",
          ("PLUG-05",), _corrected_requests),
    Fault("the CDI specification lacks libcuda and nvidia-smi", "training",
          ("PLUG-07", "WORK-01", "WORK-03"), _with_cdi(H100, _without_libraries)),
    Fault("the container runtime gives all GPUs to pods that set NVIDIA_VISIBLE_DEVICES=all",
          "training", ("ISO-01",), _nvidia_runtime),
    Fault("the CDI specification leaks a second GPU", "training",
          ("ISO-02",), _with_cdi(H100, _second_gpu)),
    Fault("the CDI specification names one GPU for two devices", "training",
          ("ISO-03", "PLUG-08"), _with_cdi(H100, _same_gpu)),
    Fault("the CDI specification names one GPU for the shares of two", "notebooks",
          ("ISO-04",), _with_cdi(T4, _same_gpu)),
    Fault("small MIG devices are given a larger slice", "research",
          ("ISO-05", "ISO-06", "ISO-08"), _with_cdi(A100, _largest_slice)),
    Fault("a second GPU is in the container under another name", "training",
          ("ISO-07",), _with_cdi(H100, _unnamed_gpu)),
    Fault("the CDI specification gives the folder of a daemon's socket writable", "training",
          ("ISO-09",), _with_cdi(H100, _writable_sockets)),
    Fault("the agent cannot ask the kubelet who holds what", "research",
          ("OBS-02", "OBS-03", "OBS-05"), _no_pod_resources),
    Fault("pods on GPUs are ended by whatever happens to their node", "training",
          ("DISR-01", "DISR-02", "DISR-03", "DISR-04", "DISR-08"), _killed_pods),
    Fault("another tool destroys MIG devices that idle pods hold", "research",
          ("DISR-05", "DISR-06"), _destroyed_mig_devices),
)  # fmt: skip

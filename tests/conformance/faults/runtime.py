"""A container runtime that gives more than was asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.conformance.faults.fault import H100, Options
from tests.conformance.scene import Scene

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
def nvidia_runtime(scene: Scene) -> Iterator[Options]:
    script = "cp /usr/bin/runc /run/runc-itself; cat > /run/runc-nvidia; chmod 755 /run/runc-nvidia"
    mount = "mount --bind /run/runc-nvidia /usr/bin/runc"
    scene.on_node_with(H100, _NVIDIA_RUNTIME, "sh", "-c", f"{script}; {mount}")
    try:
        yield {}
    finally:
        scene.deployed.on_node(H100, "umount", "/usr/bin/runc")

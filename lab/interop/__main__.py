"""Prove NVIDIA's programs on a lab of their own: DIVVY_LAB=field python -m lab.interop."""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from conformance import implementation as targets
from divvy.model import parse_document
from divvy.model.gpu_models import gpu_model
from divvy.plan import plan
from divvy.stack.file import read_stack
from lab.cluster import lifecycle
from lab.cluster.description import DEFAULT_CONTAINERD, Lab
from lab.cluster.paths import NAME, REPOSITORY
from lab.cluster.section import read_lab
from lab.cluster.tools import (
    CONTAINERD_VERSIONS,
    FIELD_TOOLS,
    KUBERNETES_VERSIONS,
    NVIDIA_CONTAINER_TOOLKIT_VERSION,
    NVIDIA_DEVICE_PLUGIN,
    NVIDIA_DEVICE_PLUGIN_VERSION,
    NVIDIA_DRA_DRIVER,
    NVIDIA_DRA_DRIVER_VERSION,
)
from lab.interop import deployment, device_plugin, dra_driver
from lab.interop.configurations import (
    CONFIGURATIONS,
    Configuration,
    DriverConfiguration,
    PluginConfiguration,
)
from lab.interop.deployment import GpuNode
from lab.interop.results import Outcome, Run, read_outcomes, write_results
from lab.setup.parts import build_tool
from lab.setup.steps import Step, run_steps

_STACK = Path(__file__).parent / "stack.yaml"
_OUT = REPOSITORY / "out/field"
_NAME = "field"
_PROGRAM_VERSIONS = {
    targets.NVIDIA_DEVICE_PLUGIN.name: {"k8s-device-plugin": NVIDIA_DEVICE_PLUGIN_VERSION},
    targets.NVIDIA_DRA.name: {"dra-driver-nvidia-gpu": NVIDIA_DRA_DRIVER_VERSION},
}
_DIVVY = Path(sys.executable).with_name("divvy")


def main() -> int:
    """Run the configurations that are named, all by default, and keep what each has shown."""
    parser = argparse.ArgumentParser(prog="python -m lab.interop", description=__doc__)
    parser.add_argument("configurations", nargs="*", metavar="CONFIGURATION",
                        help=f"of {', '.join(CONFIGURATIONS)}")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the lab and the last one up")
    arguments = parser.parse_args()
    names = arguments.configurations or list(CONFIGURATIONS)
    if unknown := [name for name in names if name not in CONFIGURATIONS]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(CONFIGURATIONS)}")
    if NAME != _NAME:
        parser.error(f"the lab is {NAME}: run it as DIVVY_LAB={_NAME} python -m lab.interop")
    if not run_steps([Step(f"Go tools: {tool.name}", build_tool(tool)) for tool in FIELD_TOOLS]):
        return 1
    base = yaml.safe_load(_STACK.read_text())
    lab = read_lab(read_stack(None, _STACK))
    configurations = [CONFIGURATIONS[name] for name in names]
    try:
        # Each implementation has a lab of its own: a kubelet lists the devices of a plugin that
        # has left until it is restarted, and a check of the next implementation would see them.
        for _, same in itertools.groupby(configurations, lambda known: known.implementation.name):
            lifecycle.down()
            lifecycle.up(lab, _tell)
            for run in _prove(list(same), lab, base):
                if not arguments.keep:
                    write_results([run], list(CONFIGURATIONS))
                    _tell("docs/field/results.json has it; python -m docs.generate writes the page")
    finally:
        if not arguments.keep:
            lifecycle.down()
    return 0


def _prove(
    configurations: Sequence[Configuration], lab: Lab, base: Mapping[str, Any]
) -> Iterator[Run]:
    nodes = [
        GpuNode(node.name, node.gpus.count, gpu_model(node.gpus.model).mig is not None)
        for node in lab.nodes
        if node.gpus is not None
    ]
    place = base["config"]["divvy:cluster"]["plugin"]["image"]
    _tell("the image of NVIDIA's programs is built")
    programs = [tool.bin for tool in (NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA_DRIVER)]
    image = deployment.build_image(place["registry"], place["base"], programs, dra_driver.files())
    for node in nodes:
        deployment.install_hook(node)
    versions = _versions(lab)
    for configuration in configurations:
        yield Run(
            configuration.implementation.name,
            configuration.name,
            configuration.title,
            time.strftime("%Y-%m-%d", time.gmtime()),
            {**_PROGRAM_VERSIONS[configuration.implementation.name], **versions},
            _prove_configuration(configuration, image, nodes, base),
        )


def _prove_configuration(
    configuration: Configuration, image: str, nodes: Sequence[GpuNode], base: Mapping[str, Any]
) -> tuple[Outcome, ...]:
    implementation = configuration.implementation
    title = f"{implementation.title}, {configuration.title}"
    _tell(f"{title}: deployed")
    deployment.remove((device_plugin.NAMESPACE, dra_driver.NAMESPACE), nodes)
    for node in nodes:
        made_before = configuration.layout if configuration.made_before else {}
        deployment.partition(node, made_before, mode=bool(configuration.layout))
    deployment.prepare(nodes)
    _deploy(configuration, image, nodes)
    out = _OUT / configuration.name
    out.mkdir(parents=True, exist_ok=True)
    stack = configuration.stack(base)
    file = out / "stack.yaml"
    file.write_text(yaml.safe_dump(stack, sort_keys=False))
    deployment.await_devices(implementation, _promised(stack))
    _tell(f"{title}: checked")
    command = [str(_DIVVY), "verify", f"--file={file}", f"--out={out}", "--exclusive"]
    command += [f"--target={implementation.name}"]
    # What fails is what is to be known.
    subprocess.run(command, cwd=REPOSITORY, check=False)
    return read_outcomes(yaml.safe_load((out / "report.yaml").read_text()))


def _deploy(configuration: Configuration, image: str, nodes: Sequence[GpuNode]) -> None:
    match configuration:
        case PluginConfiguration():
            device_plugin.deploy(configuration, image, nodes)
        case DriverConfiguration():
            dra_driver.deploy(configuration, image)


def _promised(stack: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return node → resource → count; the pools are called as their only nodes are."""
    cluster = parse_document(stack["config"]["divvy:cluster"]).cluster
    return {
        f"gpu-{pool.name}": dict(pool.node.per_node)
        for pool in plan(cluster, _NAME).pools
        if pool.node is not None
    }


def _versions(lab: Lab) -> dict[str, str]:
    return {
        "nvidia-container-toolkit": NVIDIA_CONTAINER_TOOLKIT_VERSION,
        "Kubernetes": KUBERNETES_VERSIONS[lab.kubernetes],
        "containerd": CONTAINERD_VERSIONS[DEFAULT_CONTAINERD],
        "simulated driver": next(node.driver_version for node in lab.nodes if node.gpus),
    }


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

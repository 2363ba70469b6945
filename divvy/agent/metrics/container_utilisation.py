"""The GPU time that each container's processes take, where the driver counts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

from divvy.agent.containers import Container, Member, containers_by_id
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.metrics.page import Page
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.processes import find_process
from divvy.model.sharing import ALL_COMPUTE


def by_container(
    percents: Iterable[tuple[Member, int]], containers: Mapping[str, Container]
) -> dict[Container, int]:
    """Add up what the processes of each container take; one of an unknown container is left out."""
    sums: Counter[Container] = Counter()
    for where, percent in percents:
        container = containers.get(where.container_id)
        if container is not None:
            sums[container] += percent
    return {container: min(percent, ALL_COMPUTE) for container, percent in sums.items()}


async def utilisation_gauge(
    page: Page,
    driver: Driver,
    gpus: Iterable[Gpu],
    container_logs: Path,
    users: Mapping[str, Set[Container]],
) -> None:
    """Show it of every GPU that is not in MIG mode.

    ``users`` are the containers that have something of a GPU, by its UUID. Those of which the
    driver names no process took nothing, if every process that it names is one of theirs.
    """
    gauge = page.gauge(
        "divvy_container_gpu_utilisation",
        "Per cent of a GPU's time that the processes of a container took lately.",
        ["gpu", "uuid", "namespace", "pod", "container"],
    )
    for gpu in gpus:
        if not gpu.present or gpu.mig_mode:
            continue
        try:
            processes = await driver.utilisation(gpu)
        except DriverProblem:
            continue  # of this GPU; its state says why
        if processes is None:
            continue
        percents = []
        try:
            for process in processes:
                running = find_process(process["pid"])
                if running is not None:
                    _, where = running
                    percents.append((where, process["percent"]))
            containers = containers_by_id(link.name for link in container_logs.iterdir())
        except OSError:
            return  # what is not known is absent
        taken = by_container(percents, containers)
        own = users.get(gpu.uuid, frozenset())
        whose = {containers.get(where.container_id) for where, _ in percents}
        if len(percents) == len(processes) and whose <= own:
            taken = {**dict.fromkeys(own, 0), **taken}
        for container, percent in sorted(taken.items()):
            namespace, _, pod = container.pod.partition("/")
            gauge.set(percent, str(gpu.index), gpu.uuid, namespace, pod, container.name)

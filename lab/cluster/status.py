"""What of the lab runs and where it writes its logs."""

from pathlib import Path

from lab.cluster import control_plane, processes, registry
from lab.cluster.api import Api
from lab.cluster.description import Lab
from lab.cluster.errors import ControlPlaneFailed, LabFailed
from lab.cluster.lifecycle import running_lab
from lab.cluster.machine import Machine
from lab.cluster.paths import LOGS
from lab.cluster.tools import KUBERNETES_VERSIONS

HOST_COMPONENTS = (*control_plane.COMPONENTS, registry.COMPONENT)


def report() -> tuple[list[str], bool]:
    """Return the version, one line per component and node, and whether all of the lab is well."""
    lab = running_lab()
    lines, complete = [f"{'Kubernetes':<26} {KUBERNETES_VERSIONS[lab.kubernetes]}"], True
    for component in HOST_COMPONENTS:
        pid = processes.find(component)
        complete &= pid is not None
        lines.append(f"{component:<26} {f'runs, process {pid}' if pid else 'does not run'}")
    ready = _ready_nodes(lab)
    for node in lab.nodes:
        machine = Machine(lab, node)
        name = f"node {node.name}"
        if not machine.running():
            lines.append(f"{name:<26} does not run")
            complete = False
            continue
        state = "Ready" if node.name in ready else "not Ready"
        complete &= state == "Ready"
        if machine.outdated():
            complete = False
            state += ", not upgraded yet (divvy lab upgrade goes on)"
        parts = []
        for component, how in machine.ask({"do": "status"}).items():
            complete &= bool(how["pid"])
            process_state = "runs" if how["pid"] else "does not run"
            again = f" (restarted {how['restarts']}×, {how['last end']})" if how["restarts"] else ""
            parts.append(f"{component} {process_state}{again}")
        lines.append(f"{name:<26} {state}: {', '.join(parts)}")
    return lines, complete


def log_files(of: str, component: str | None) -> list[Path]:
    """Return the logs of a node, of one of its components, or of a component of this machine."""
    lab = running_lab()
    if of in HOST_COMPONENTS and component is None:
        return [LOGS / f"{of}.log"]
    names = [node.name for node in lab.nodes]
    if of not in names:
        known = ", ".join([*names, *HOST_COMPONENTS])
        raise LabFailed(f"{of} has no logs; available: {known}")
    files = Machine(lab, lab.node(of)).logs()
    if not files:
        raise LabFailed(f"{of} has no logs yet: it has not been started")
    chosen = [file for file in files if component in (None, file.stem)]
    if not chosen:
        known = ", ".join(file.stem for file in files)
        raise LabFailed(f"{of} has no log of {component}; available: {known}")
    return chosen


def _ready_nodes(lab: Lab) -> set[str]:
    try:
        return set(Api(lab).ready_nodes())
    except (ControlPlaneFailed, FileNotFoundError):
        # A lab that is being started has no certificates yet.
        return set()

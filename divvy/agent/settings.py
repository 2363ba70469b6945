"""``Settings`` of the agent: its environment, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from divvy.model.api_names import (
    CDI_FOLDER,
    CONFIG_MAP,
    DRIVER_ROOT,
    DRIVER_ROOT_VARIABLE,
    METRICS_PORT,
    MPS_FOLDER,
    PLUGIN_FOLDER,
    REGISTRY_FOLDER,
    SHARE_FOLDER,
    STATE_FOLDER,
)


class InvalidSetting(Exception):
    """An environment variable that is missing or wrong: which, and what would be right."""


@dataclass(frozen=True)
class Settings:
    """The agent's surroundings.

    ``driver_root`` is the driver root as this process sees it and
    ``host_driver_root`` the same folder as the host's runtime does;
    ``device_folder`` is the host's /dev and ``containerd_folder`` its
    /etc/containerd as this process sees them. ``cgroup_folder`` is where the control groups are
    mounted, here and on the host. ``state_folder`` has the same path
    on the host: containers' hook is run from there. ``share_folder`` too: containers mount files of
    it, and the one of each GPU in ``mps_folder`` as /dev/shm. A watch of the API that is
    silent for ``watch_seconds`` is opened again. ``claims_folder`` is that of the driver's socket,
    ``registry_folder`` where the kubelet finds drivers; both have the same paths on the host.
    ``ldconfig_program`` is a static one: the hook runs it in containers. ``own_pod`` is the
    agent's own, "namespace/name".
    """

    node: str
    namespace: str
    own_pod: str
    config_map: str
    driver_root: Path
    host_driver_root: PurePosixPath
    plugin_folder: Path
    pod_resources_socket: Path
    cdi_folder: Path
    state_folder: Path
    share_folder: Path
    mps_folder: Path
    device_folder: Path
    container_logs: Path
    containerd_folder: Path
    cgroup_folder: Path
    hook_program: Path
    ldconfig_program: Path
    limiter_folder: Path
    listen: str
    port: int
    watch_seconds: float
    claims_folder: Path
    registry_folder: Path


_DEFAULTS = {
    "DIVVY_CONFIG_MAP": CONFIG_MAP,
    "DIVVY_DRIVER_ROOT": DRIVER_ROOT,
    DRIVER_ROOT_VARIABLE: "/",
    "DIVVY_PLUGIN_FOLDER": "/var/lib/kubelet/device-plugins",
    "DIVVY_POD_RESOURCES": "/var/lib/kubelet/pod-resources/kubelet.sock",
    "DIVVY_CDI_FOLDER": CDI_FOLDER,
    "DIVVY_STATE_FOLDER": STATE_FOLDER,
    "DIVVY_SHARE_FOLDER": SHARE_FOLDER,
    "DIVVY_MPS_FOLDER": MPS_FOLDER,
    "DIVVY_DEVICE_FOLDER": "/host-dev",
    "DIVVY_CONTAINER_LOGS": "/var/log/containers",
    "DIVVY_CONTAINERD_FOLDER": "/host-containerd",
    "DIVVY_CGROUP_FOLDER": "/sys/fs/cgroup",
    "DIVVY_HOOK": "/opt/divvy-hook",
    "DIVVY_LDCONFIG": "/sbin/ldconfig",
    "DIVVY_LIMITER": "/opt/divvy-limiter",
    "DIVVY_LISTEN": "0.0.0.0",  # noqa: S104 (the pod's own address)
    "DIVVY_PORT": str(METRICS_PORT),
    "DIVVY_WATCH_SECONDS": "240",
    "DIVVY_CLAIMS_FOLDER": PLUGIN_FOLDER,
    "DIVVY_REGISTRY_FOLDER": REGISTRY_FOLDER,
}


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read the settings; raises InvalidSetting."""
    values = {name: environment.get(name) or default for name, default in _DEFAULTS.items()}
    for name in ("NODE_NAME", "NAMESPACE", "POD_NAME"):
        if not environment.get(name):
            raise InvalidSetting(
                f"{name} is not set: the DaemonSet passes it from the pod's own fields"
            )
    port = values["DIVVY_PORT"]
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidSetting(f"DIVVY_PORT is {port!r}: a port number from 1 to 65535 is right")
    watch = values["DIVVY_WATCH_SECONDS"]
    if not watch.isdigit() or int(watch) < 1:
        raise InvalidSetting(f"DIVVY_WATCH_SECONDS is {watch!r}: whole seconds, 1 or more")
    return Settings(
        node=environment["NODE_NAME"],
        namespace=environment["NAMESPACE"],
        own_pod=f"{environment['NAMESPACE']}/{environment['POD_NAME']}",
        config_map=values["DIVVY_CONFIG_MAP"],
        driver_root=Path(values["DIVVY_DRIVER_ROOT"]),
        host_driver_root=PurePosixPath(values[DRIVER_ROOT_VARIABLE]),
        plugin_folder=Path(values["DIVVY_PLUGIN_FOLDER"]),
        pod_resources_socket=Path(values["DIVVY_POD_RESOURCES"]),
        cdi_folder=Path(values["DIVVY_CDI_FOLDER"]),
        state_folder=Path(values["DIVVY_STATE_FOLDER"]),
        share_folder=Path(values["DIVVY_SHARE_FOLDER"]),
        mps_folder=Path(values["DIVVY_MPS_FOLDER"]),
        device_folder=Path(values["DIVVY_DEVICE_FOLDER"]),
        container_logs=Path(values["DIVVY_CONTAINER_LOGS"]),
        containerd_folder=Path(values["DIVVY_CONTAINERD_FOLDER"]),
        cgroup_folder=Path(values["DIVVY_CGROUP_FOLDER"]),
        hook_program=Path(values["DIVVY_HOOK"]),
        ldconfig_program=Path(values["DIVVY_LDCONFIG"]),
        limiter_folder=Path(values["DIVVY_LIMITER"]),
        listen=values["DIVVY_LISTEN"],
        port=int(port),
        watch_seconds=float(watch),
        claims_folder=Path(values["DIVVY_CLAIMS_FOLDER"]),
        registry_folder=Path(values["DIVVY_REGISTRY_FOLDER"]),
    )

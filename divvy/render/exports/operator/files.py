"""The GPU Operator's files: its values, two ConfigMaps, and the labels of the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster, Pool, hardware_model
from divvy.model.api_names import DEVICE_PLUGIN_ALIAS, MIG_ALIAS
from divvy.model.stack import IGNORED_XIDS, tolerations_of
from divvy.render.exports.operator.translation import Translation
from divvy.render.exports.plain_yaml import plain_yaml

TIME_SLICING = "nvidia-time-slicing-config"
MIG = "nvidia-mig-config"
REPOSITORY = "nvcr.io/nvidia"
_DRIVER_CONTAINER = "/run/nvidia/driver"
_RUNTIMES = {"cri-o": "crio"}
# Commands stay on one line, to be copied.
_WIDTH = 1000


@dataclass(frozen=True)
class Site:
    """What the stack file does not know: where the operator is, and where its drivers are from."""

    stack: str
    namespace: str = "gpu-operator"
    driver_repository: str | None = None
    driver_version: str | None = None


def operator_files(cluster: Cluster, translation: Translation, site: Site) -> dict[str, str]:
    """Return the files by name; the same input gives the same text."""
    install = (
        f"helm upgrade -i gpu-operator nvidia/gpu-operator --namespace {site.namespace} "
        "--values values.yaml"
    )
    values = operator_values(cluster, translation, site)
    about = f"GPU Operator values of the stack {site.stack}"
    if translation.claims is not None:
        return {"values.yaml": f"# {about}: {install}\n{plain_yaml(values, _WIDTH)}"}
    heads = {
        "values.yaml": f"{about}. After the ConfigMaps:\n# {install}",
        f"{TIME_SLICING}.yaml": "How GPUs are shared, for the device plugin: kubectl apply -f",
        f"{MIG}.yaml": "How GPUs are cut, for mig-manager: kubectl apply -f",
        "node-labels.yaml": "Which nodes follow what: run each command after the operator is up",
    }
    bodies: dict[str, object] = {
        "values.yaml": values,
        f"{TIME_SLICING}.yaml": _config_map(TIME_SLICING, site, time_slicing_data(translation)),
        f"{MIG}.yaml": _config_map(
            MIG, site, {"config.yaml": plain_yaml(mig_configs(translation))}
        ),
        "node-labels.yaml": node_labels(translation),
    }
    if not time_slicing_data(translation):
        del bodies[f"{TIME_SLICING}.yaml"]
    if not _any_cut(translation):
        del bodies[f"{MIG}.yaml"]
    return {name: f"# {heads[name]}\n{plain_yaml(body, _WIDTH)}" for name, body in bodies.items()}


def operator_values(cluster: Cluster, translation: Translation, site: Site) -> dict[str, Any]:
    """Return what differs from the operator's own values."""
    runtimes = {pool.runtime.name for pool in translation.pools.values()}
    values: dict[str, Any] = {}
    if len(runtimes) == 1:
        (runtime,) = runtimes
        values["operator"] = {"defaultRuntime": _RUNTIMES.get(runtime, runtime)}
    driver = _driver(cluster, site)
    if translation.claims is not None:
        values |= translation.claims.values()
        # The chart refuses this stack with a driver of the other one.
        values["driver"] = driver | (
            {"nvidiaDriverCRD": {"enabled": True}} if "image" in driver else {}
        )
    else:
        values |= _plugin_stack(cluster, translation, driver)
    values["dcgmExporter"] = {"enabled": True}
    if cluster.observability.service_monitor:
        values["dcgmExporter"]["serviceMonitor"] = {"enabled": True}
    if tolerations := tolerations_of(translation.pools.values()):
        values["daemonsets"] = {"tolerations": tolerations}
    root = cluster.driver.root.rstrip("/")
    if root not in ("", _DRIVER_CONTAINER):
        values["hostPaths"] = {"driverInstallDir": root}
    return values


def _plugin_stack(
    cluster: Cluster, translation: Translation, driver: Mapping[str, Any]
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "mig": {"strategy": translation.strategy},
        "driver": driver,
        "toolkit": {"enabled": True},
    }
    if _any_cut(translation):
        default = _mig_name(translation, translation.default)
        values["migManager"] = {"config": {"name": MIG, "default": default}}
    if plugin := _plugin(cluster, translation):
        values["devicePlugin"] = plugin
    return values


def time_slicing_data(translation: Translation) -> dict[str, str]:
    """Return the device plugin's configurations by profile.

    Nodes without a label share nothing, unless that is the default: then they need one.
    """
    unshared = {"version": "v1"}
    return {
        name: plain_yaml(profile.sharing or unshared)
        for name, profile in translation.profiles.items()
        if profile.sharing or _default_shares(translation)
    }


def mig_configs(translation: Translation) -> dict[str, Any]:
    """Return mig-parted's file: every layout, and MIG off."""
    off = {_off(translation): [{"devices": "all", "mig-enabled": False}]}
    layouts = {
        name: list(profile.cut) for name, profile in translation.profiles.items() if profile.cut
    }
    return {"version": "v1", "mig-configs": {**off, **layouts}}


def node_labels(translation: Translation) -> list[dict[str, Any]]:
    """Return for every pool, and every node that differs, the labels it needs."""
    listed = []
    for name, pool in translation.pools.items():
        entry: dict[str, Any] = {"pool": name, "profile": pool.profile}
        if pool.select is None:
            entry["nodes"] = "every GPU node in no other pool (the default pool needs no label)"
        else:
            selector = ",".join(f"{key}={value}" for key, value in sorted(pool.select.items()))
            labels = _labels(translation, pool, pool.profile)
            entry["selector"] = selector
            entry["labels"] = {key: value for key, value in labels.items() if value}
            entry["command"] = _command(f"--selector {selector}", labels)
        listed.append(entry)
        for node, profile in pool.overrides.items():
            labels = _labels(translation, pool, profile)
            listed.append(
                {
                    "pool": name,
                    "node": node,
                    "profile": profile,
                    "labels": {key: value for key, value in labels.items() if value},
                    "command": _command(node, labels),
                }
            )
    return listed


def _labels(translation: Translation, pool: Pool, profile: str) -> dict[str, str | None]:
    """Return the labels of a node; None: it must not have the label."""
    shared = translation.profiles[profile].sharing is not None or _default_shares(translation)
    labels: dict[str, str | None] = {DEVICE_PLUGIN_ALIAS: profile if shared else None}
    capable = pool.hardware is None or hardware_model(pool.hardware).mig is not None
    if capable and _any_cut(translation):
        labels[MIG_ALIAS] = profile if translation.profiles[profile].cut else _off(translation)
    return labels


def _command(nodes: str, labels: Mapping[str, str | None]) -> str:
    words = [f"{key}={value}" if value else f"{key}-" for key, value in labels.items()]
    return f"kubectl label node {nodes} --overwrite {' '.join(words)}"


def _default_shares(translation: Translation) -> bool:
    default = translation.default
    return default is not None and translation.profiles[default.profile].sharing is not None


def _mig_name(translation: Translation, pool: Pool | None) -> str:
    if pool is not None and translation.profiles[pool.profile].cut:
        return pool.profile
    return _off(translation)


def _off(translation: Translation) -> str:
    """Return the name for MIG off that no layout has."""
    return "disabled" if not _cuts(translation, "disabled") else "all-disabled"


def _any_cut(translation: Translation) -> bool:
    return any(profile.cut for profile in translation.profiles.values())


def _cuts(translation: Translation, name: str) -> bool:
    return name in translation.profiles and translation.profiles[name].cut is not None


def _driver(cluster: Cluster, site: Site) -> dict[str, Any]:
    """Return where the driver is from: a container of the operator's, or the node itself."""
    on_the_node = cluster.driver.root.rstrip("/") != _DRIVER_CONTAINER
    if site.driver_repository is None and on_the_node:
        return {"enabled": False}
    driver = {"repository": site.driver_repository or REPOSITORY, "image": "driver"}
    version = site.driver_version or cluster.driver.version
    if version is not None:
        driver["version"] = version
    if site.driver_repository is not None:
        # A tag of a mirror may be pushed again.
        driver["imagePullPolicy"] = "Always"
    return driver


def _plugin(cluster: Cluster, translation: Translation) -> dict[str, Any]:
    plugin: dict[str, Any] = {}
    if time_slicing_data(translation):
        plugin["config"] = {"name": TIME_SLICING}
    if translation.default is not None and _default_shares(translation):
        plugin["config"]["default"] = translation.default.profile
    environment = _plugin_environment(cluster)
    return {**plugin, "env": environment} if environment else plugin


def _plugin_environment(cluster: Cluster) -> list[dict[str, str]]:
    """Return the device plugin's settings that its values have no keys for."""
    ignored = set(cluster.health.ignore_xids)
    more, less = sorted(ignored - set(IGNORED_XIDS)), sorted(set(IGNORED_XIDS) - ignored)
    packed = cluster.placement.replicas == "pack"
    environment = {
        "DP_DISABLE_HEALTHCHECKS": ",".join(map(str, more)),
        "DP_ENABLE_HEALTHCHECKS": ",".join(map(str, less)),
        "SHARED_DEVICES_ALLOCATION_POLICY": "packed" if packed else "",
    }
    return [{"name": name, "value": value} for name, value in environment.items() if value]


def _config_map(name: str, site: Site, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": site.namespace},
        "data": dict(data),
    }

"""The feature labels that follow from a node's plan, and those that the agent owns beside them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from conformance.evidence import Verdict
from conformance.observe.identities import cuda_version, driver_version
from conformance.promise import NodePromise
from divvy.model import is_memory_of, parse_count
from divvy.model.api_names import OWNED_LABELS
from divvy.model.mig_names import resource_part
from divvy.plan import Device

_PREFIX = "nvidia.com/"
_OWNED = re.compile(OWNED_LABELS)
_SHARED = "-SHARED"
# As GPU Feature Discovery names architectures, by compute capability.
_FAMILIES = {
    (7, 0): "volta", (7, 5): "turing", (8, 9): "ada-lovelace",
    5: "maxwell", 6: "pascal", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell",
    13: "rubin",
}  # fmt: skip
_OF_MIG = ("count", "memory", "multiprocessors", "product", "replicas", "sharing-strategy")


def judge_labels(
    node: NodePromise,
    labels: Mapping[str, str],
    driver: str,
    free: Collection[str] = (),
) -> Verdict:
    """Judge a node's labels; ``driver`` is the version that is loaded, "" if it is unknown.

    Those under the names that the agent owns and that follow from nothing are stale, but for
    ``free`` ones, which need not follow from anything.
    """
    wanted = expected_labels(node, driver)
    own = {name.removeprefix(_PREFIX): text for name, text in labels.items() if _OWNED.match(name)}
    live = {name: own.get(name) for name in wanted}
    live["gpu.product"] = (live["gpu.product"] or "").removesuffix(_SHARED)
    if node.plan.gpus:
        model = node.plan.gpus[0].model
        if live["gpu.product"] in {name.replace(" ", "-") for name in model.products}:
            # The same model is sold under several names.
            wanted["gpu.product"] = live["gpu.product"]
        memory = parse_count(live["gpu.memory"])
        if memory is not None and not _single(node) and is_memory_of(model, memory):
            # Drivers and ECC settings move it by a few percent.
            wanted["gpu.memory"] = str(memory)
    stale = {
        name: text
        for name, text in own.items()
        if not (name in free or _may_be(name, node, wanted))
    }
    wrong = [name for name in wanted if live[name] != wanted[name]]
    right = f"{len(wanted) - len(wrong)} labels as of the plan; stale labels: "
    return (
        "; ".join([*(f"{name}={wanted[name]}" for name in wrong), f"{right}none"]),
        "; ".join(
            [*(f"{name}={live[name]}" for name in wrong), f"{right}{_listed(stale) or 'none'}"]
        ),
    )


def versions_are_advertised(labels: Mapping[str, str], table: str) -> Verdict:
    """Judge the versions in a node's labels by nvidia-smi's table of a pod there."""
    observed = {"driver": driver_version(table), "CUDA": cuda_version(table)}
    advertised = {
        "driver": labels.get(f"{_PREFIX}cuda.driver-version.full"),
        "CUDA": labels.get(f"{_PREFIX}cuda.runtime-version.full"),
    }
    if missing := [name for name, version in observed.items() if version is None]:
        # Labels that say nothing are not right for it.
        return "a pod finds both versions", f"a pod finds no version of {' and '.join(missing)}"
    expected, actual = (
        ", ".join(f"{name} {version or 'unknown'}" for name, version in versions.items())
        for versions in (observed, advertised)
    )
    return f"labels say {expected}", f"labels say {actual}"


def expected_labels(node: NodePromise, driver: str) -> dict[str, str]:
    """Return the labels whose values follow from a node's plan and driver, without their domain."""
    model = node.plan.gpus[0].model
    whole = [device for device in node.plan.devices if device.kind.startswith("gpu")]
    parts = [device for device in node.plan.devices if device.placement is not None]
    # GPU Feature Discovery: 0 if everything is MIG devices under their own names.
    shares = max((device.shares for device in whole), default=0 if parts else 1)
    wanted: dict[str, str | int] = {
        "gpu.count": len(node.plan.gpus),
        "gpu.product": model.product.replace(" ", "-"),
        "gpu.memory": model.memory_mib,
        "gpu.replicas": shares,
        "gpu.sharing-strategy": _strategy(node, shares),
    }
    if model.compute_capability is not None:
        major, minor = model.compute_capability
        wanted |= {"gpu.compute.major": major, "gpu.compute.minor": minor}
        wanted["gpu.family"] = _FAMILIES.get((major, minor)) or _FAMILIES.get(major, "undefined")
    if model.is_described and not model.mig_unpublished:
        wanted["mig.capable"] = str(model.mig is not None).lower()
    if driver:
        parts_of_version = dict(
            zip(("major", "minor", "revision"), driver.split("."), strict=False)
        )
        wanted |= {
            f"cuda.driver-version.{name}": text
            for name, text in {"full": driver, **parts_of_version}.items()
        }
    for device in parts:
        name = _name(device)
        profile = model.mig and device.placement and model.mig.profile(device.placement.profile)
        if not device.share and name.startswith("mig-"):
            wanted[f"{name}.count"] = int(wanted.get(f"{name}.count", 0)) + 1
            wanted[f"{name}.memory"] = profile.memory_mib if profile else 0
    if single := _single(node):
        first = single[0]
        assert first.placement is not None
        profile = model.mig and model.mig.profile(first.placement.profile)
        wanted |= {
            "gpu.count": sum(not device.share for device in single),
            "gpu.memory": profile.memory_mib if profile else 0,
            "gpu.product": f"{wanted['gpu.product']}-MIG-{resource_part(first.placement.profile)}",
            "gpu.replicas": first.shares,
            "gpu.sharing-strategy": "time-slicing" if first.shares > 1 else "none",
        }
    return {name: str(value) for name, value in wanted.items()}


def _strategy(node: NodePromise, shares: int) -> str:
    if any(offer.sharing.by_mps for gpu in node.plan.gpus for offer in gpu.offers):
        return "mps"
    return "time-slicing" if shares > 1 else "none"


def _may_be(name: str, node: NodePromise, wanted: Mapping[str, str]) -> bool:
    """Return whether a label follows from the node, by its name."""
    if name in wanted or name.startswith(("cuda.", "gpu.compute.")) or name == "gpu.family":
        return True
    if name == "mig.capable":
        return True
    if name == "mig.strategy":
        return any(gpu.placements or gpu.claims for gpu in node.plan.gpus)
    if name == "gpu.multiprocessors":
        return bool(_single(node))
    resource, _, what = name.rpartition(".")
    return what in _OF_MIG and resource in {_name(device) for device in node.plan.devices}


def _single(node: NodePromise) -> list[Device]:
    """Return the MIG devices that are advertised under the name of whole GPUs."""
    parts = (device for device in node.plan.devices if device.placement is not None)
    return [device for device in parts if _name(device) == "gpu"]


def _name(device: Device) -> str:
    return device.resource.removeprefix(_PREFIX).removesuffix(".shared")


def _listed(labels: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())

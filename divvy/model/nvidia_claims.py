"""Claims that were written for NVIDIA's driver: its classes, and what becomes of its parameters.

``names.classes: nvidia`` has Divvy serve such claims. The agent, `divvy fit` and a test of
docs/coming-from.md read this table. Source: sigs.k8s.io/dra-driver-nvidia-gpu 0.5,
api/nvidia.com/resource/v1beta1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from divvy.model.claim_names import NVIDIA

GPU_CLASS, MIG_CLASS = NVIDIA, "mig.nvidia.com"
CLASSES = (GPU_CLASS, MIG_CLASS)
# Of both classes, what a device's attribute ``type`` in NVIDIA's domain says.
TYPES: Mapping[str, str] = {GPU_CLASS: "gpu", MIG_CLASS: "mig"}
TYPE = "type"

_API_VERSION = "resource.nvidia.com/v1beta1"
_KINDS = ("GpuConfig", "MigDeviceConfig")
TIME_SLICING, MPS = "TimeSlicing", "MPS"
_DEFAULT = "Default"
INSTEAD_OF_MPS = (
    "MPS is not served in a claim: leave `sharing` out, and the claim's containers share its "
    "device by time; for MPS, write a profile with `mps`"
)
INSTEAD_OF_INTERVAL = (
    "a time slice is the whole GPU's, and Divvy leaves the driver's as it is: leave "
    "`timeSlicingConfig` out"
)


def nvidias_nodes(slices: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the nodes that NVIDIA's driver serves by ResourceSlices, by name."""
    specs = (resource_slice["spec"] for resource_slice in slices)
    nodes = {spec.get("nodeName") or "a node" for spec in specs if spec.get("driver") == NVIDIA}
    return tuple(sorted(nodes))


def parameters_problem(configs: Iterable[Any], requests: Collection[str]) -> str:
    """Return why the parameters for NVIDIA's driver of some requests are refused, "" if none are.

    ``configs`` are those of a claim or its allocation; ``requests`` the names of the requests that
    get Divvy's devices, ``name/subrequest`` for an alternative.
    """
    for config in configs:
        opaque = config.get("opaque") if isinstance(config, Mapping) else None
        if not isinstance(opaque, Mapping) or opaque.get("driver") != NVIDIA:
            continue
        named = config.get("requests") or requests
        if not isinstance(named, Collection) or any(
            name in named or name.partition("/")[0] in named for name in requests
        ):
            problem = _problem(opaque.get("parameters"))
            if problem:
                return f"parameters for {NVIDIA}: {problem}"
    return ""


def _problem(parameters: object) -> str:
    if not isinstance(parameters, Mapping):
        return "not an object"
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != _API_VERSION or kind not in _KINDS:
        known = " or ".join(_KINDS)
        return f"{_word(kind)} of {_word(version)} is not known; {known} of {_API_VERSION} is"
    if unknown := _unknown(parameters, "apiVersion", "kind", "sharing"):
        return f"{kind} has the unknown field {_word(unknown)}"
    sharing = parameters.get("sharing")
    return "" if sharing is None else _sharing_problem(sharing)


def _sharing_problem(sharing: object) -> str:
    """Return why containers of a claim cannot share its device so, "" if they do."""
    if not isinstance(sharing, Mapping):
        return "`sharing` is not an object"
    strategy = sharing.get("strategy")
    if strategy == MPS:
        return INSTEAD_OF_MPS
    if strategy != TIME_SLICING:
        return f"the strategy {_word(strategy)} is not known; {TIME_SLICING} is"
    if unknown := _unknown(sharing, "strategy", "timeSlicingConfig"):
        return f"`sharing` has the unknown field {_word(unknown)}"
    slicing = sharing.get("timeSlicingConfig")
    if slicing is None:
        return ""
    if not isinstance(slicing, Mapping) or _unknown(slicing, "interval"):
        return "`timeSlicingConfig` has more than `interval`"
    interval = slicing.get("interval")
    if interval in (None, _DEFAULT):
        return ""
    return f"interval {_word(interval)}: {INSTEAD_OF_INTERVAL}"


def _unknown(values: Mapping[Any, Any], *known: str) -> str:
    """Return a field that is not known, "" if all are."""
    return min(map(str, values.keys() - set(known)), default="")


def _word(value: object) -> str:
    """Return what a user has written, short and on one line."""
    return " ".join(str(value)[:40].split()) if isinstance(value, str) else "(no text)"

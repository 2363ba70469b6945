"""Names that claims go by: attributes and capacities of devices, device classes, templates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from divvy.model.api_names import CLAIMS_DRIVER, TEMPLATE_PREFIX
from divvy.model.mig_names import resource_part

# Attributes of a device, in the driver's own domain.
KIND, WHOLE, UUID, INDEX = "kind", "whole", "uuid", "index"
PRODUCT, TYPE, ARCHITECTURE = "product", "type", "architecture"
TENANT, PROFILE, START, SIMULATED = "tenant", "profile", "start", "simulated"
DRIVER_VERSION, CUDA_VERSION = "driverVersion", "cudaDriverVersion"
COMPUTE_CAPABILITY = "cudaComputeCapability"
# Attributes that all drivers call alike (k8s.io/dynamic-resource-allocation/deviceattribute).
PCI_BUS_ID, PCIE_ROOT, NUMA_NODE = (
    f"resource.kubernetes.io/{name}" for name in ("pciBusID", "pcieRoot", "numaNode")
)
# The domain of NVIDIA's driver: claims that were written for it name attributes of that domain.
NVIDIA = "gpu.nvidia.com"
# Capacities of a device: bytes, per cent of the GPU's time, turns (a share takes one).
MEMORY, CORES, SHARES = "memory", "cores", "shares"

GPU_CLASS, SHARE_CLASS, MIG_CLASS = "divvy-gpu", "divvy-share", "divvy-mig"

# What stands before lists in the name of a template. No GPU type is called so.
_USE, _NO, _TENANT = "use", "no", "tenant"
RESERVED_TYPES = (_USE, _NO, _TENANT)
# What an annotation may have copied of a product's name, and how many of them.
TYPE_IN_ANNOTATION = "^[A-Za-z0-9]([A-Za-z0-9 ()/._-]*[A-Za-z0-9)])?$"
MAX_TYPES, MAX_TEMPLATE_NAME = 16, 253
_TYPE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_UNITS: dict[str, Literal["m", "p", "g"]] = {"m": "m", "p": "p", "g": "g"}
_SIZE = re.compile(
    rf"{TEMPLATE_PREFIX}(?P<count>[1-9]\d{{0,3}})x(?P<amount>[1-9]\d{{0,9}})(?P<unit>[mpg])"
    r"(-(?P<cores>[1-9]\d{0,2})c)?"
)


@dataclass(frozen=True)
class SizedRequest:
    """What the name of a template says: so many shares, each of this size, on GPUs of these types.

    ``amount`` is MiB, or per cent of the GPU's memory where ``unit`` is ``p``; where it is ``g``,
    1 for the whole GPU. ``cores`` is per cent of its time, None if nothing was asked for.
    """

    count: int
    amount: int
    unit: Literal["m", "p", "g"]
    cores: int | None = None
    use_types: tuple[str, ...] = ()
    no_types: tuple[str, ...] = ()
    tenant: str | None = None


def share_class(tenant: str | None) -> str:
    """Return the class of shares that no tenant has, or of those of a tenant."""
    return SHARE_CLASS if tenant is None else f"{SHARE_CLASS}-{tenant}"


def mig_class(profile: str) -> str:
    """Return the class of MIG devices of a profile."""
    return f"{MIG_CLASS}-{resource_part(profile)}"


def unqualified(values: Mapping[str, str]) -> dict[str, str]:
    """Return capacities by name alone: claims may say ``divvy.gpu/memory`` for ``memory``."""
    return {name.removeprefix(f"{CLAIMS_DRIVER}/"): value for name, value in values.items()}


def type_of_product(product: str) -> str:
    """Return a product's name as types are compared: ``nvidia-a100-sxm4-40gb``."""
    return "-".join(re.findall(r"[a-z0-9]+", product.lower()))


def is_of_type(known: str, wanted: str) -> bool:
    """Return whether a type of a product has the parts of another one side by side.

    ``nvidia-a100-sxm4-40gb`` is of type ``a100``, and not of type ``a10``.
    """
    return f"-{wanted}-" in f"-{known}-"


def template_name(request: SizedRequest) -> str:
    """Return the name of the template of a request: equal requests share one."""
    cores = "" if request.cores is None else f"-{request.cores}c"
    parts = [f"{TEMPLATE_PREFIX}{request.count}x{request.amount}{request.unit}{cores}"]
    for word, values in ((_USE, request.use_types), (_NO, request.no_types)):
        if values:
            parts += [word, *values]
    if request.tenant is not None:
        parts += [_TENANT, request.tenant]
    return ".".join(parts)


def parse_template_name(name: str) -> SizedRequest | None:
    """Read the name of a template, None if it is none of ours."""
    size, *rest = name.split(".")
    match = _SIZE.fullmatch(size)
    if match is None or (match["unit"] == "p" and int(match["amount"]) > 100):
        return None
    if match["cores"] is not None and int(match["cores"]) > 100:
        return None
    if match["unit"] == "g" and (match["amount"] != "1" or match["cores"] is not None):
        return None
    tenant = None
    if rest[-2:-1] == [_TENANT]:
        *rest, _, tenant = rest  # which may be called like a list
        if not _TYPE.fullmatch(tenant):
            return None
    lists: dict[str, list[str]] = {_USE: [], _NO: []}
    order = [word for word in rest if word in lists]
    if order != [word for word in lists if word in order]:
        return None
    current: list[str] | None = None
    for part in rest:
        if part in lists:
            current = lists[part]
        elif current is None or part == _TENANT or not _TYPE.fullmatch(part):
            return None
        else:
            current.append(part)
    if any(not lists[word] for word in order):
        return None
    # As the mutation writes them: a name is a selector of GPUs, and equal requests share one.
    if any(len(set(types)) > MAX_TYPES or sorted(set(types)) != types for types in lists.values()):
        return None
    return SizedRequest(
        int(match["count"]),
        int(match["amount"]),
        _UNITS[match["unit"]],
        None if match["cores"] is None else int(match["cores"]),
        tuple(lists[_USE]),
        tuple(lists[_NO]),
        tenant,
    )

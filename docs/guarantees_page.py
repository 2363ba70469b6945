"""The page about guarantees: what each way of sharing promises, in the plan's own words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from divvy.model import GpuFacts, Selection, gpu_model, parse_cluster, resolve
from divvy.model.enforcement import MPS_V3_SINCE, NodeCapabilities, driver_limits_problem
from divvy.model.versions import is_older
from divvy.plan import Guarantees, guarantees, level, predict_node

_MODEL = "A100-SXM4-40GB"
_WAYS: Mapping[str, tuple[str, Any]] = {
    "whole": ("whole GPU", {}),
    "slices": ("time-slicing", {"timeSlicing": {"replicas": 4}}),
    "watched": (
        "time-slicing with `memoryLimit`",
        {"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}},
    ),
    "prevented": (
        "time-slicing with `action: prevent` and `compute: share`",
        {
            "timeSlicing": {
                "replicas": 4,
                "memoryLimit": {"limit": "auto", "action": "prevent"},
                "compute": "share",
            }
        },
    ),
    "driver": (
        "time-slicing with `enforcement: driver`",
        {
            "timeSlicing": {
                "replicas": 4,
                "memoryLimit": {"limit": "auto", "action": "prevent", "enforcement": "driver"},
            }
        },
    ),
    "mps": ("MPS", {"mps": {"replicas": 4}}),
    "mps-prevented": (
        "MPS with `action: prevent`",
        {"mps": {"replicas": 4, "memoryLimit": {"limit": "auto", "action": "prevent"}}},
    ),
    "mps-driver": (
        "MPS with `enforcement: driver`",
        {
            "mps": {
                "replicas": 4,
                "memoryLimit": {"limit": "auto", "action": "prevent", "enforcement": "driver"},
            }
        },
    ),
    "mig": ("MIG", {"mig": {"1g.5gb": 7}}),
    "mig-slices": ("MIG + time-slicing", {"mig": {"3g.20gb": 2}, "timeSlicing": {"replicas": 4}}),
    "shares": ("share by claim", {"claims": {"shares": {}, "tenants": ["prod", "dev"]}}),
}
_NO_SHARE = "no share is offered, and the node's status says why"
# What keeps a container within its memory, the strongest first: how a profile asks for it, which
# way has it, and what follows where a node lacks it.
_MEANS: Mapping[str, tuple[str, str | None, str]] = {
    "mig": ("`mig`", "mig", "the GPU is advertised whole, and the node's status says why"),
    "driver": (
        "`enforcement: driver` or `auto`, of `timeSlicing` and of `mps`",
        "driver",
        f"`driver`: {_NO_SHARE}; `auto`: the limiter",
    ),
    "mps v3": ("`mps`; `prevent` adds the limiter or the driver", "mps", "MPS is version 2"),
    "mps": ("the same", "mps", _NO_SHARE),
    "limiter": (
        "`action: prevent` of `timeSlicing` and of `mps`; shares by claim",
        "mps-prevented",
        _NO_SHARE,
    ),
    "watched": ("`memoryLimit`", "watched", "every node has it"),
}
# A driver of each generation, and who counts for its limits under which kernel.
_DRIVERS = ("535.183.06", "570.133.20", "580.95.05", "615.71.09")
_COUNTED_BY = {"before 6.14": "misc", "6.14 or newer": "dmem"}
_CGROUPS = (1, 2)
_AUTO = {
    "timeSlicing": {
        "replicas": 4,
        "memoryLimit": {"limit": "auto", "action": "prevent", "enforcement": "auto"},
    }
}
_NAMES = {"nvidiaSmi": "what nvidia-smi shows"}
_PROVEN = {
    "memory": "ISO-05, ISO-06",
    "compute": "HW-01, HW-02, HW-04 (hardware only)",
    "faults": "HW-03 (hardware only)",
    "nvidiaSmi": "ISO-02, ISO-08",
}
_INTRODUCTION = f"""\
# What each way of sharing guarantees

`divvy plan` uses the same words; they never promise more than the mechanism enforces. The figures
are for one {_MODEL}. *A container uses at most* says nothing about sharing: the columns after
it say whether that is its own. Each word is explained below the table.

**Use MIG where tenants do not trust each other or need a fixed part of a GPU.** Time-slicing is for
people who share by agreement: notebooks, tests, small inference. A replica is a turn on the GPU,
not a part of it: two replicas give a container no more than one. MPS lets kernels of several
containers run at the same time, and is no boundary either: its limits are of processes, and one
fault ends all of a GPU's clients. It has been run on the simulated driver only, not yet on a real
one.

Guarantees that the driver library in the container enforces (*prevented*, *weighted*, *capped*)
hold for containers without any other GPU resource; others do not start: [shares with
limits](limiter.md).
"""
_LADDER = """\

## The strongest means that a node has

With `memoryLimit: {action: prevent, enforcement: auto}` each node keeps a container within its
memory by the strongest means that it has: nodes with an old and a new driver follow one profile.
`enforcement: driver` asks for the driver's own limits; a node that cannot set them offers none
and its status says why. They need driver 615, control groups of version 2, CDI, and a whole GPU;
MIG devices have the limiter. If the limiter is needed in any case, for `compute` or
`oversubscribe`, auto means the limiter.

With driver 615 or newer `mps` is version 3 of MPS: each container's share is a namespace. It limits
processes, as version 2 does, and not what they use together: that takes `prevent`. But its limits
hold whatever a container's variables say, except one: naming a GPU that it does not have lifts its
limit of memory, though not that of SMs (measured by NVIDIA).

The driver's limits and MPS' namespaces have been run on the simulated driver only, by what NVIDIA
documents of 615; it measured that its limits hold for clients of MPS, too, of version 3.

"""
_LADDER_BY_NODE = """\

What `auto` comes to on a node, alike for `timeSlicing` and `mps`. `divvy preview` names nodes whose
driver is too old. *counted by* says who adds up a container's memory, the kernel (`dmem`) or the
driver itself (`misc`); both refuse alike.

"""
_END = """\

## Priorities, and what is proven

**Priorities** are none of these promises. Where the device plugin serves a GPU, the scheduler
preempts pods of a lower priority for it, as for any resource. For claims it preempts no pod;
Kueue does ([priorities](claims.md#priorities)).

`divvy verify` proves what can be proven on live nodes; [conformance](conformance.md) lists the
checks. Checks that need real hardware (compute, bandwidth, faults) are skipped by name on
simulated GPUs.

This page is generated: python -m docs.generate.
"""


def guarantees_page() -> str:
    """Return the table of guarantees."""
    table = "\n".join([_INTRODUCTION, *_table()])
    ladder = [_LADDER + "\n".join(_means()), _LADDER_BY_NODE + "\n".join(_ladder()), _END]
    return "\n".join([table, *ladder])


def _table() -> Iterator[str]:
    devices = dict(_devices())
    names = [_NAMES.get(key, key) for key in _PROVEN]
    yield f"| | resource | a container uses at most | {' | '.join(names)} |"
    yield f"|---|---|---|{'---|' * len(names)}"
    for name, device in devices.items():
        words = dict(device.guarantees.items())
        levels = " | ".join(level(words[key]) for key in _PROVEN)
        yield f"| {_WAYS[name][0]} | `{device.resource}` | {device.reaches} | {levels} |"
    for key, proof in _PROVEN.items():
        yield ""
        yield f"## {_NAMES.get(key, key).capitalize()}"
        yield ""
        yield f"Checked by {proof}."
        yield ""
        ways: dict[str, list[str]] = {}
        for name, device in devices.items():
            ways.setdefault(dict(device.guarantees.items())[key], []).append(_WAYS[name][0])
        for text, titles in ways.items():
            explanation = text.partition(":")[2].strip()
            yield f"* **{level(text)}** ({', '.join(titles)}): {explanation}"


def _means() -> Iterator[str]:
    """Yield what each means is: who asks for it, what it guarantees, what takes its place."""
    devices = dict(_devices())
    yield "| means, the strongest first | asked for by | memory | where a node lacks it |"
    yield "|---|---|---|---|"
    for means, (asked, way, otherwise) in _MEANS.items():
        memory = "–" if way is None else level(devices[way].guarantees.memory)
        yield f"| {means} | {asked} | {memory} | {otherwise} |"


def _ladder() -> Iterator[str]:
    """Yield what `enforcement: auto` comes to by driver, kernel and control groups."""
    cluster = parse_cluster({"profiles": {"auto": _AUTO}, "pools": {"p": {"profile": "auto"}}})
    model = gpu_model(_MODEL)
    facts = [GpuFacts(0, "GPU 0", model.product, model.memory_mib, model)]
    nodes_by_result: dict[str, list[tuple[str, str, str]]] = {}
    for driver, (kernel, counter), version in product(_DRIVERS, _COUNTED_BY.items(), _CGROUPS):
        capabilities = NodeCapabilities(driver, version)
        selection = Selection(None, "auto", "pool", None)
        (offer,) = resolve(cluster, selection, facts, capabilities=capabilities).gpus[0].offers
        lacks = {
            "driver": driver_limits_problem(capabilities),
            "mps v3": is_older(driver, MPS_V3_SINCE),
        }
        has = ", ".join(means for means in _MEANS if not lacks.get(means))
        by = f"driver, counted by `{counter}`" if offer.sharing.by_driver else "limiter"
        result = f"{has} | {by} | {level(guarantees(offer).memory)}"
        node = (driver.partition(".")[0], kernel, f"v{version}")
        nodes_by_result.setdefault(result, []).append(node)
    yield "| driver | kernel | cgroups | has | memory limit by | memory |"
    yield "|---|---|---|---|---|---|"
    for result, nodes in nodes_by_result.items():
        drivers, kernels, versions = (
            tuple(dict.fromkeys(column)) for column in zip(*nodes, strict=True)
        )
        # One row stands for all combinations of what it lists.
        if len(nodes) != len(drivers) * len(kernels) * len(versions):
            raise ValueError(f"no row can say on which nodes this is so: {result}")
        kernel = "any" if len(kernels) == len(_COUNTED_BY) else kernels[0]
        version = "any" if len(versions) == len(_CGROUPS) else versions[0]
        yield f"| {', '.join(drivers)} | {kernel} | {version} | {result} |"


@dataclass(frozen=True)
class _Column:
    resource: str
    reaches: str
    guarantees: Guarantees


def _devices() -> Iterator[tuple[str, _Column]]:
    profiles = {name: profile for name, (_, profile) in _WAYS.items()}
    hardware = {"model": _MODEL, "gpus": 1, "count": 1}
    pools = {"p": {"hardware": hardware, "profile": "whole"}}
    cluster = parse_cluster({"profiles": profiles, "pools": pools})
    for name in profiles:
        node = predict_node(cluster, name, gpu_model(_MODEL), 1)
        if node.devices:
            device = node.devices[0]
            reaches = f"{device.memory_mib:,} MiB, {device.sms} SMs"
            yield name, _Column(device.resource, reaches, device.guarantees)
        else:
            share = node.claimable[-1]
            yield name, _Column("nvidia.com/gpumem", "the size it asks for", share.guarantees)

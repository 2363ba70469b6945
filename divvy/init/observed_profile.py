"""The profile of a node, out of what it offers: the reverse of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from divvy.init.answers import MAX_GPUS
from divvy.init.gpu_node import INVALID, GpuNode, without_suffix
from divvy.init.layouts import fewest_gpus, spread
from divvy.model import GpuModel
from divvy.model.mig_names import resource_part
from divvy.model.profile import MAX_MPS_CLIENTS
from divvy.model.resource_names import GPU, SHARED_SUFFIX, VENDOR

_MIG = f"{VENDOR}/mig-"


class Unexplained(Exception):
    """No profile offers what a node offers; the text says why."""


class GpusUnknown(Exception):
    """How many GPUs a node has cannot be told; ``guess`` is the smallest number, None for none."""

    def __init__(self, guess: int | None) -> None:
        super().__init__(guess)
        self.guess = guess


@dataclass(frozen=True)
class Described:
    """A node's GPUs: how many, and what a stack file would say of them, rule by GPU."""

    gpus: int
    profile: Any
    name: str
    assumed: bool = False
    """Which GPU of the node has which rule was assumed: the API does not tell."""


@dataclass(frozen=True)
class _Sharing:
    replicas: int = 1
    renamed: bool = True


def describe(
    node: GpuNode, model: GpuModel | None, gpus: int | None, offered: Mapping[str, int]
) -> Described:
    """Return a profile that offers exactly this; raises Unexplained and GpusUnknown.

    Without a model there is no MIG. A node that offers nothing yet gets whole GPUs.
    """
    if node.single == INVALID:
        asked = node.labels.get("nvidia.com/mig.config")
        raise Unexplained(
            f"has a MIG layout that the strategy single cannot name, says its label {GPU}.product"
            + (f"; its label {VENDOR}/mig.config asks for {asked}" if asked else "")
        )
    for resource in offered:
        if without_suffix(resource) != GPU and not resource.startswith(_MIG):
            raise Unexplained(f"offers {resource}, which only its device plugin can interpret")
    if not offered:
        if node.divvy:
            raise Unexplained("is served by Divvy already, which advertises no resource there")
        if gpus is None:
            raise GpusUnknown(None)
        return Described(gpus, {}, "whole")
    if node.single is not None:
        return _single(node, model, gpus, offered)
    mig = {name: count for name, count in offered.items() if name.startswith(_MIG)}
    cards = {name: count for name, count in offered.items() if name not in mig}
    if mig:
        return _with_mig(node, model, gpus, cards, mig)
    rules = _card_rules(node, cards, gpus)
    if gpus is not None and len(rules) != gpus:
        raise Unexplained(f"offers {_listed(cards)}, which do not match {gpus} GPUs")
    return _described(rules)


def _card_rules(node: GpuNode, cards: Mapping[str, int], gpus: int | None) -> list[Any]:
    """Return a rule for each GPU that is not partitioned: the shared ones first.

    ``gpus`` is how many of these GPUs the node has, None if that is not known.
    """
    rules: list[Any] = []
    whole = cards.get(GPU, 0) if len(cards) > 1 else 0
    for resource, count in sorted(cards.items(), reverse=True):
        renamed = resource.endswith(SHARED_SUFFIX)
        replicas = node.replicas.get(GPU) if renamed or not whole else 1
        if replicas is None:
            # Whole GPUs, or replicas of fewer: without feature labels it cannot be seen.
            if gpus is None:
                raise GpusUnknown(None if renamed or count > MAX_GPUS else count)
            shared = gpus - (whole if renamed else 0)
            replicas = count // shared if shared > 0 and count % shared == 0 else 0
        if not replicas or count % replicas or (renamed and replicas == 1):
            raise Unexplained(f"offers {_listed(cards)}, which no number of replicas explains")
        if count // replicas > MAX_GPUS:
            raise Unexplained(f"offers {_listed(cards)}, which need more than {MAX_GPUS} GPUs")
        rules += [_rule(node, {}, _Sharing(replicas, renamed))] * (count // replicas)
    return rules


def _single(
    node: GpuNode, model: GpuModel | None, gpus: int | None, offered: Mapping[str, int]
) -> Described:
    if len(offered) != 1 or model is None or model.mig is None:
        raise Unexplained(f"its labels say MIG strategy single, and it offers {_listed(offered)}")
    ((resource, count),) = offered.items()
    sharing = _Sharing(node.replicas.get(GPU, 1), resource.endswith(SHARED_SUFFIX))
    name = _profile(model, str(node.single))
    if name is None or count % sharing.replicas:
        raise Unexplained(f"its labels name MIG devices {node.single}, which {model.name} lacks")
    devices = {name: count // sharing.replicas}
    if gpus is None:
        raise GpusUnknown(fewest_gpus(model.mig, devices))
    layouts = spread(model.mig, devices, gpus)
    if layouts is None:
        raise Unexplained(f"{gpus} GPUs cannot hold {_listed(devices)}")
    return _described(
        [_rule(node, {"layout": layout, "strategy": "single"}, sharing) for layout in layouts]
    )


def _with_mig(
    node: GpuNode,
    model: GpuModel | None,
    gpus: int | None,
    cards: Mapping[str, int],
    mig: Mapping[str, int],
) -> Described:
    if model is None or model.mig is None:
        raise Unexplained(f"offers {_listed(mig)}, and Divvy does not know its model's MIG")
    groups = _mig_groups(node, model, mig)
    others = _card_rules(node, cards, cards.get(GPU)) if cards else []
    if gpus is None:
        fewest = [fewest_gpus(model.mig, devices) for devices in groups.values()]
        known = sum(number for number in fewest if number is not None)
        raise GpusUnknown(known + len(others) if None not in fewest else None)
    cut = _cut(node, model, groups, gpus - len(others))
    if cut is None:
        raise Unexplained(
            f"{gpus} GPUs, {gpus - len(others)} of them partitioned, cannot hold {_listed(mig)}"
        )
    return _described([*cut, *others])


def _mig_groups(
    node: GpuNode, model: GpuModel, mig: Mapping[str, int]
) -> dict[_Sharing, dict[str, int]]:
    """Return the MIG devices by how they are shared: a GPU has one way of sharing."""
    groups: dict[_Sharing, dict[str, int]] = {}
    for resource, count in mig.items():
        base = without_suffix(resource)
        name = _profile(model, base.removeprefix(_MIG))
        renamed = resource.endswith(SHARED_SUFFIX)
        replicas = node.replicas.get(base, 0 if renamed else 1)
        if name is None:
            raise Unexplained(f"offers {resource}, which {model.name} lacks")
        if not replicas or count % replicas or (renamed and replicas == 1):
            raise Unexplained(f"offers {count} {resource}, which no label's replicas explain")
        # If it is not shared, there is nothing to rename.
        sharing = _Sharing(replicas, renamed) if replicas > 1 else _Sharing()
        groups.setdefault(sharing, {})[name] = count // replicas
    return groups


def _cut(
    node: GpuNode, model: GpuModel, groups: Mapping[_Sharing, Mapping[str, int]], gpus: int
) -> list[Any] | None:
    """Return a rule for each partitioned GPU, group by group; None if they do not fit."""
    assert model.mig is not None
    (sharing, devices), *more = groups.items()
    rest = dict(more)
    for gpu_count in [gpus] if not rest else range(1, gpus):
        layouts = spread(model.mig, devices, gpu_count) if gpu_count > 0 else None
        if layouts is None:
            continue
        others = _cut(node, model, rest, gpus - gpu_count) if rest else []
        if others is not None:
            return [*(_rule(node, layout, sharing) for layout in layouts), *others]
    return None


def _rule(node: GpuNode, mig: Mapping[str, Any], sharing: _Sharing) -> dict[str, Any]:
    rule: dict[str, Any] = {"mig": dict(mig)} if mig else {}
    if sharing.replicas == 1:
        return rule
    slicing: dict[str, Any] = {"replicas": sharing.replicas}
    if not sharing.renamed:
        slicing["renameByDefault"] = False
    if node.mps and not mig and sharing.replicas <= MAX_MPS_CLIENTS:
        if not node.divvy:
            # NVIDIA's default under MPS.
            slicing["failRequestsGreaterThanOne"] = True
        return {"mps": slicing}
    if not node.divvy:
        # NVIDIA's default, which running pods may count on; Divvy's is the safer one.
        slicing["failRequestsGreaterThanOne"] = False
    return {**rule, "timeSlicing": slicing}


def _described(rules: list[Any]) -> Described:
    """Put the rules of all GPUs together; the first GPUs have those that come first."""
    if all(rule == rules[0] for rule in rules):
        return Described(len(rules), rules[0], _name(rules[0]))
    listed: list[Any] = []
    first = 0
    for rule, equal in groupby(rules):
        number = len(list(equal))
        listed.append({"devices": list(range(first, first + number)), **rule})
        first += number
    return Described(len(rules), listed, "split", assumed=True)


def _name(rule: Mapping[str, Any]) -> str:
    parts = []
    mig = rule.get("mig")
    if mig:
        single = "strategy" in mig
        layout = mig["layout"] if single else mig
        parts += [f"{count}x{resource_part(name)}" for name, count in layout.items()]
        parts += ["single"] if single else []
    if "mps" in rule:
        parts.append(f"mps-{rule['mps']['replicas']}")
    if "timeSlicing" in rule:
        parts.append(f"slice-{rule['timeSlicing']['replicas']}")
    return "-".join(parts) or "whole"


def _profile(model: GpuModel, part: str) -> str | None:
    """Return the MIG profile that a resource name means."""
    names = [] if model.mig is None else [profile.name for profile in model.mig.profiles]
    return next((name for name in names if resource_part(name) == part), None)


def _listed(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in devices.items())

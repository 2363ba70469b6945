"""The stack of a cluster that is there: pools and profiles whose plan is what the nodes offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from divvy.init.answers import Answers, Question
from divvy.init.claimed_gpus import ClaimedGpus
from divvy.init.gpu_node import GpuNode
from divvy.init.observed_profile import Described, GpusUnknown, Unexplained, describe
from divvy.init.pools import Member, NodesAlike, pools_of
from divvy.model import Cluster, InvalidCluster, gpu_model, parse_cluster
from divvy.model.api_names import ALIAS_LABELS
from divvy.plan.predict.prediction import predict_node

_Key = tuple[Literal["model", "gpus"], tuple[tuple[str, int], ...], str, int | None]


@dataclass(frozen=True)
class LeftOut:
    """Nodes that no pool has, and why."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Draft:
    """What `divvy init` would write: the cluster value, and what a reader should know of it.

    With ``questions`` it is not complete. ``nodes`` are those that pools have, ``idle`` those of
    them that offer nothing yet, ``assumed`` the profiles that may have GPUs of a node exchanged,
    ``renamed`` the new names of imported profiles.
    """

    cluster: Mapping[str, Any] = field(default_factory=dict)
    nodes: tuple[GpuNode, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    questions: tuple[Question, ...] = ()
    idle: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def draft(
    nodes: Sequence[GpuNode],
    labels: Mapping[str, Mapping[str, str]],
    answers: Answers,
    imported: Mapping[str, Any],
    claimed: Mapping[str, ClaimedGpus],
    unread: Sequence[str] = (),
) -> Draft:
    """Describe a cluster; ``labels`` are those of all its nodes, GPUs or not.

    ``imported`` are profiles of other configurations, by name: one that offers what a node offers
    is its profile. ``claimed`` are the GPUs that other drivers serve to ResourceClaims, by node.
    ``unread`` are nodes of which only the names could be read: they may have GPUs.
    """
    members: list[Member] = []
    refused = {"cannot be read, and may have GPUs": list(unread)} if unread else {}
    nodes_by_key: dict[_Key, list[GpuNode]] = {}
    profiles = _Profiles(imported, {node.labels.get(key) for node in nodes for key in ALIAS_LABELS})
    reduced = []
    for node in nodes:
        if node.name in claimed and not node.offered and (reason := claimed[node.name].problem):
            refused.setdefault(reason, []).append(node.name)
            continue
        try:
            member, is_reduced = _member(node, answers, profiles)
        except Unexplained as unexplained:
            refused.setdefault(str(unexplained), []).append(node.name)
        except _Unanswered as open_question:
            for key in open_question.keys:
                nodes_by_key.setdefault(key, []).append(node)
        else:
            members.append(member)
            reduced += [node.name] if is_reduced else []
    left_out = tuple(LeftOut(tuple(names), reason) for reason, names in refused.items())
    questions = tuple(_question(key, key_nodes) for key, key_nodes in nodes_by_key.items())
    if questions or not members:
        return Draft(left_out=left_out, questions=questions)
    members, renamed = _follow_labels(members, profiles)
    try:
        pools = _pools(members, labels, profiles, complete=not left_out)
    except NodesAlike as alike:
        reason = (
            "these nodes have no distinguishing label: label them, as in "
            "`kubectl label node NODE gpus=t4`"
        )
        left_out = (*left_out, LeftOut(tuple(alike.nodes), reason))
        members = [member for member in members if member.node.name not in alike.nodes]
        if not members:
            return Draft(left_out=left_out)
        pools = _pools(members, labels, profiles, complete=False)
    cluster: dict[str, Any] = {"profiles": profiles.needed(pools), "pools": pools}
    if any(member.node.claimed is not None for member in members):
        # Claims that are there name NVIDIA's classes.
        cluster["names"] = {"classes": "nvidia"}
    drafted_nodes = tuple(member.node for member in members)
    return Draft(
        cluster,
        drafted_nodes,
        left_out,
        idle=tuple(n.name for n in drafted_nodes if not n.offered and n.claimed is None),
        reduced=tuple(reduced),
        assumed=tuple(name for name in cluster["profiles"] if name in profiles.assumed),
        renamed={old: new for old, new in renamed.items() if new in cluster["profiles"]},
        unknown=tuple(sorted({str(m.node.product) for m in members if m.model is None})),
    )


def _follow_labels(
    members: Sequence[Member], profiles: _Profiles
) -> tuple[list[Member], dict[str, str]]:
    """Rename imported profiles that labels would choose for nodes that offer something else."""
    members, renamed = list(members), {}
    while name := next(filter(None, (profiles.overruling(member) for member in members)), None):
        renamed[name] = profiles.rename(name)
        members = [
            replace(member, profile=renamed[name]) if member.profile == name else member
            for member in members
        ]
    return members, renamed


def _pools(
    members: Sequence[Member],
    labels: Mapping[str, Mapping[str, str]],
    profiles: _Profiles,
    *,
    complete: bool,
) -> dict[str, dict[str, Any]]:
    """Return pools that a stack file may have; raises NodesAlike."""
    pools = pools_of(members, labels, complete=complete)
    if _is_valid({"profiles": profiles.needed(pools), "pools": pools}):
        return pools
    # With overrides a name would mean two things in a pool.
    return pools_of(members, labels, complete=complete, apart=True)


class _Unanswered(Exception):
    """A node's model or number of GPUs has to be asked for."""

    def __init__(
        self, kinds: Sequence[Literal["model", "gpus"]], node: GpuNode, guess: int | None
    ) -> None:
        super().__init__(*kinds, node.name)
        # Nodes of one machine type that offer the same have the same answer.
        machine = node.labels.get("node.kubernetes.io/instance-type", "")
        self.keys: list[_Key] = [
            (kind, tuple(node.offered.items()), machine, guess) for kind in kinds
        ]


def _member(node: GpuNode, answers: Answers, profiles: _Profiles) -> tuple[Member, bool]:
    """Return a node with its profile's name, and whether it offers less than it could."""
    model = answers.model(node.name) or node.model
    gpus = answers.gpus(node.name) or node.gpus
    if model is None and node.product is None:
        # No model tells how many GPUs a node has that offers nothing.
        both = gpus is None and not any((*node.offered.values(), *node.capacity.values()))
        raise _Unanswered(("model", "gpus") if both else ("model",), node, None)
    last: Unexplained | None = None
    for offered in (node.offered, node.capacity):
        try:
            described = (
                Described(gpus or 0, node.claimed, "on-demand")
                if node.claimed is not None
                else describe(node, model, gpus, offered)
            )
        except GpusUnknown as unknown:
            raise _Unanswered(("gpus",), node, unknown.guess) from None
        except Unexplained as unexplained:
            last = last or unexplained
            continue
        name = profiles.name(described, None if model is None else model.name, offered)
        if name is None:
            last = last or Unexplained("it advertises something that no Divvy profile can express")
            continue
        return Member(node, model, described.gpus, name), offered is not node.offered
    assert last is not None
    raise last


def _question(key: _Key, nodes: Sequence[GpuNode]) -> Question:
    kind, devices, _, guess = key
    offers = ", ".join(f"{count} × {name}" for name, count in devices) or "nothing yet"
    return Question(kind, tuple(node.name for node in nodes), offers, guess)


class _Profiles:
    """The profiles by name: those that came from files, and those that nodes need."""

    def __init__(self, imported: Mapping[str, Any], used_names: set[str | None]) -> None:
        self._imported = dict(imported)
        self._new_profiles: dict[str, Any] = {}
        self._used_names = used_names
        self._known: dict[tuple[object, ...], str | None] = {}
        self.assumed: set[str] = set()

    def name(
        self, described: Described, model: str | None, offered: Mapping[str, int]
    ) -> str | None:
        """Return the name of a profile under which a node offers this; None if there is none."""
        key = (model, described.gpus, tuple(offered.items()), repr(described.profile))
        if key not in self._known:
            self._known[key] = self._find(described, model, offered)
        return self._known[key]

    def _find(
        self, described: Described, model: str | None, offered: Mapping[str, int]
    ) -> str | None:
        fits = _check(model, described.gpus, offered)
        # What an unknown model would offer cannot be compared.
        for name, value in self._imported.items() if model and offered else ():
            for form in (value, _as_single(value)):
                if form is not None and fits(form):
                    return self._use(name, form)
        if not fits(described.profile):
            return None
        for name, value in self._new_profiles.items():
            if value == described.profile:
                return name
        name = self._free(described.name)
        self._new_profiles[name] = described.profile
        if described.assumed:
            self.assumed.add(name)
        return name

    def overruling(self, member: Member) -> str | None:
        """Return the imported profile that a node's label chooses in the place of its own."""
        for key in ALIAS_LABELS if member.node.offered else ():
            alias = member.node.labels.get(key)
            if alias == member.profile:
                return None
            if alias in self._imported:
                return alias
        return None

    def rename(self, name: str) -> str:
        """Give an imported profile a name that no label chooses, and return it."""
        free = self._free(name)
        self._imported = {
            free if old == name else old: value for old, value in self._imported.items()
        }
        return free

    def _use(self, name: str, form: Any) -> str:
        self._imported = {**self._imported, name: form}
        return name

    def needed(self, pools: Mapping[str, Any]) -> dict[str, Any]:
        """Return the profiles that pools follow, then those of files that Divvy can have, too."""
        used = {
            name
            for pool in pools.values()
            for name in (pool["profile"], *pool.get("overrides", {}).values())
        }
        profiles = {name: value for name, value in self._imported.items() if name in used}
        profiles |= {name: value for name, value in self._new_profiles.items() if name in used}
        for name, value in self._imported.items():
            if name not in profiles and _is_valid(
                {"profiles": {**profiles, name: value}, "pools": pools}
            ):
                profiles[name] = value
        return profiles

    def _free(self, name: str) -> str:
        """Return a name that nothing has: also no label's value, which would choose the profile."""
        known = {*self._imported, *self._new_profiles, *self._used_names}
        number = 1
        while (free := name if number == 1 else f"{name}-{number}") in known:
            number += 1
        return free


def _as_single(profile: Any) -> Any:
    """Return a profile with one MIG layout under strategy "single", None for any other."""
    if isinstance(profile, dict) and "mig" in profile and "strategy" not in profile["mig"]:
        return {**profile, "mig": {"layout": profile["mig"], "strategy": "single"}}
    return None


def _check(model: str | None, gpus: int, offered: Mapping[str, int]) -> Callable[[Any], bool]:
    """Return whether nodes with these GPUs would offer this under a profile."""

    def fits(profile: Any) -> bool:
        if model is None:
            return profile_is_valid(profile)
        hardware = {"model": model, "gpus": gpus, "count": 1}
        cluster = _parsed(
            {"profiles": {"p": profile}, "pools": {"p": {"profile": "p", "hardware": hardware}}}
        )
        if cluster is None:
            return False
        predicted = predict_node(cluster, "p", gpu_model(model), gpus)
        return not offered or dict(predicted.per_node) == dict(offered)

    def profile_is_valid(profile: Any) -> bool:
        return _is_valid({"profiles": {"p": profile}, "pools": {"p": {"profile": "p"}}})

    return fits


def _is_valid(value: Any) -> bool:
    return _parsed(value) is not None


def _parsed(value: Any) -> Cluster | None:
    try:
        return parse_cluster(value)
    except InvalidCluster:
        return None

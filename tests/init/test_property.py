"""Whatever nodes offer that a profile can offer, init finds a profile that offers the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.init.answers import Answer, Answers
from divvy.init.draft import draft
from divvy.init.gpu_node import gpu_node
from divvy.init.stack_text import stack_text
from divvy.live.advertised import live_node_of
from divvy.live.live_diff import compare_live
from divvy.model import GpuModel, InvalidCluster, gpu_models, parse_cluster
from divvy.model.mig_names import resource_part
from divvy.plan.predict.prediction import predict_node
from divvy.stack.file import StackFile
from divvy.stack.sections import read_cluster
from tests.init.nodes import node

MODELS = sorted(gpu_models().values(), key=lambda model: model.name)


@st.composite
def sharing(draw: st.DrawFn) -> dict[str, Any]:
    if not draw(st.booleans()):
        return {}
    replicas = draw(st.integers(2, 12))
    return {"timeSlicing": {"replicas": replicas, "renameByDefault": draw(st.booleans())}}


@st.composite
def profiles(draw: st.DrawFn, model: GpuModel, gpus: int) -> Any:
    """Return a profile: all GPUs alike, or partitioned ones before others."""
    rule = draw(sharing())
    if model.mig is None or not draw(st.booleans()):
        return rule
    names = [profile.name for profile in model.mig.profiles]
    layout = draw(
        st.dictionaries(st.sampled_from(names), st.integers(1, 4), min_size=1, max_size=3)
    )
    if len(layout) == 1 and draw(st.booleans()):
        return {"mig": {"layout": layout, "strategy": "single"}, **rule}
    parted = {"mig": layout, **draw(sharing())}
    first = draw(st.integers(1, gpus))
    if first == gpus:
        return parted
    return [{"devices": list(range(first)), **parted}, rule]


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[GpuModel, int, Any]]:
    pools = []
    for _ in range(draw(st.integers(1, 3))):
        model, gpus = draw(st.sampled_from(MODELS)), draw(st.integers(1, 8))
        pools.append((model, gpus, draw(profiles(model, gpus))))
    return pools


def offered(model: GpuModel, gpus: int, profile: Any) -> Mapping[str, int] | None:
    """Return what nodes offer under a profile, None if no node can have it."""
    hardware = {"model": model.name, "gpus": gpus, "count": 1}
    value = {"profiles": {"p": profile}, "pools": {"p": {"profile": "p", "hardware": hardware}}}
    try:
        return predict_node(parse_cluster(value), "p", model, gpus).per_node
    except InvalidCluster:
        return None


def labels(model: GpuModel, gpus: int, profile: Any) -> dict[str, str]:
    """Return what feature discovery says of such a node."""
    rules = profile if isinstance(profile, list) else [profile]
    product = "-".join(model.product.split())
    own = {"nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": str(model.memory_mib)}
    for rule in rules:
        replicas = str(rule.get("timeSlicing", {}).get("replicas", 1))
        mig = rule.get("mig", {})
        if "strategy" in mig:
            (name,) = mig["layout"]
            own["nvidia.com/mig.strategy"] = "single"
            own["nvidia.com/gpu.replicas"] = replicas
            product += f"-MIG-{resource_part(name)}"
        elif mig:
            own |= {f"nvidia.com/mig-{resource_part(name)}.replicas": replicas for name in mig}
        else:
            own["nvidia.com/gpu.replicas"] = replicas
    return {**own, "nvidia.com/gpu.product": product}


@settings(max_examples=60)
@given(clusters())
def test_writes_a_file_whose_plan_is_what_the_nodes_offer(
    pools: list[tuple[GpuModel, int, Any]],
) -> None:
    nodes, answers = [], []
    for number, (model, gpus, profile) in enumerate(pools):
        devices = offered(model, gpus, profile)
        if devices is None:
            continue
        for name in (f"n{number}-a", f"n{number}-b"):
            own = labels(model, gpus, profile)
            nodes.append(node(name, devices, own, machine=f"machine-{number}"))
            # Strategy single hides it; others say it in a label.
            answers.append(Answer("gpus", name, str(gpus)))
    nodes.append(node("cpu", {}, machine="cpu"))
    read = [candidate for raw_node in nodes if (candidate := gpu_node(raw_node))]
    proposal = draft(
        read, {raw_node["metadata"]["name"]: raw_node["metadata"]["labels"] for raw_node in nodes},
        Answers(answers), {}, {},
    )  # fmt: skip
    assert not proposal.questions
    assert not proposal.left_out
    if not proposal.cluster:
        assert len(nodes) == 1
        return
    text = stack_text(proposal, (), {}, {})
    cluster = read_cluster(StackFile("stacks/Pulumi.test.yaml", text, "test"))
    difference = compare_live(cluster, "test", [live_node_of(raw_node) for raw_node in nodes])
    assert not difference, difference
    assert difference.compared == len(nodes) - 1

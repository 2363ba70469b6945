"""A stack file whose image is not for its nodes' processors is refused, and told what is right."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from divvy.image.platforms import DEFAULT_PLATFORMS, PLATFORMS
from divvy.model import InvalidCluster, PluginImage, gpu_models, parse_cluster
from divvy.model.stack import PlatformName

BUILT = {"registry": "r.example/gpus", "base": "r.example/base"}


def cluster(pool: dict[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    pools = {"main": {"profile": "p", **pool}}
    return {"profiles": {"p": {}}, "pools": pools, "plugin": {"image": image}}


def problems(pool: dict[str, Any], image: dict[str, Any]) -> list[str]:
    try:
        parse_cluster(cluster(pool, image))
    except InvalidCluster as invalid:
        return [str(problem) for problem in invalid.problems]
    return []


def hardware(model: str) -> dict[str, Any]:
    return {"hardware": {"model": model, "gpus": 1, "count": 2}}


def test_knows_the_models_that_come_with_arm64_alone() -> None:
    of_arm64 = {name for name, model in gpu_models().items() if model.node_architecture}
    assert of_arm64 == {"GH200-96GB", "GH200-144GB", "GB200", "GB300", "GB10"}
    assert {gpu_models()[name].node_architecture for name in of_arm64} == {"arm64"}


@pytest.mark.parametrize("model", ["GH200-96GB", "GH200", "GB200", "GB300"])
def test_refuses_a_pool_of_grace_whose_image_is_built_for_amd64(model: str) -> None:
    assert problems(hardware(model), BUILT) == [
        f"pools.main.hardware.model: is {model}, on nodes for linux/arm64, and the agent's image is"
        " built for linux/amd64; add linux/arm64 to plugin.image.platforms"
    ]
    both = {**BUILT, "platforms": ["linux/amd64", "linux/arm64"]}
    assert problems(hardware(model), both) == []


def test_refuses_an_image_that_is_not_for_the_nodes_label() -> None:
    arm64 = {"select": {"kubernetes.io/arch": "arm64"}}
    assert problems(arm64, BUILT) == [
        "pools.main.select.kubernetes.io/arch: is arm64, on nodes for linux/arm64, and the agent's "
        "image is built for linux/amd64; add linux/arm64 to plugin.image.platforms"
    ]
    amd64 = {"select": {"kubernetes.io/arch": "amd64"}}
    assert len(problems(amd64, {**BUILT, "platforms": ["linux/arm64"]})) == 1
    assert problems(amd64, BUILT) == []


def test_leaves_a_given_image_and_other_models_to_the_cluster() -> None:
    given = {"reference": f"r.example/agent@sha256:{'0' * 64}"}
    assert problems(hardware("GB200"), given) == []
    assert problems(hardware("H100-SXM5-80GB"), {**BUILT, "platforms": ["linux/arm64"]}) == []


def test_refuses_platforms_that_cannot_be_built() -> None:
    (problem,) = problems({}, {**BUILT, "platforms": ["linux/riscv64"]})
    assert problem.startswith("plugin.image.platforms[0]: is 'linux/riscv64'")
    (problem,) = problems({}, {**BUILT, "platforms": []})
    assert problem.startswith("plugin.image.platforms: ")
    reference = {"reference": f"r.example/agent@sha256:{'0' * 64}", "platforms": ["linux/amd64"]}
    (problem,) = problems({}, reference)
    assert "also keys for a build" in problem


def test_has_the_platforms_that_images_are_built_for() -> None:
    assert get_args(PlatformName) == tuple(PLATFORMS)
    assert PluginImage(registry="r", base="b").platforms == DEFAULT_PLATFORMS

"""What of a node is the agent's."""

from __future__ import annotations

import re

import pytest

from divvy.model.api_names import OWNED_ANNOTATIONS, OWNED_LABELS


@pytest.mark.parametrize(
    "key",
    [
        "gpu.count",
        "gpu.compute.major",
        "gpu.sharing-strategy",
        "cuda.driver-version.revision",
        "cuda.runtime-version.full",
        "mig.strategy",
        "mig-1g.5gb.count",
        "mig-1g.10gb.me.sharing-strategy",
        "mig-1g.24gb-me.product",
    ],
)
def test_owns_feature_labels(key: str) -> None:
    assert re.fullmatch(OWNED_LABELS, f"nvidia.com/{key}")


@pytest.mark.parametrize(
    "key",
    [
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.present",
        "nvidia.com/gpu-driver-upgrade-state",
        "nvidia.com/mig.config",
        "nvidia.com/mig.config.state",
        "nvidia.com/mig-1g.5gb.other",
        "nvidia.com/cuda.driver.major",
        "nvidia.com/device-plugin.config",
        "nvidiaXcom/gpu.count",
        "x.nvidia.com/gpu.count",
        "nvidia.com/gpu.count.x",
        "divvy.gpu/profile",
    ],
)
def test_leaves_other_keys_unowned(key: str) -> None:
    assert not re.fullmatch(OWNED_LABELS, key)
    assert key not in OWNED_ANNOTATIONS


def test_matches_owned_labels_alike_in_re2_and_python() -> None:
    """No backslashes, which CEL would read once more, no quotes, no look-around."""
    assert not re.search(r"[\\'\"]|\(\?", OWNED_LABELS)

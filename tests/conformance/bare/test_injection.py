"""The environment of an agent on a host without Kubernetes."""

from __future__ import annotations

from pathlib import Path

from conformance.bare.injection import agent_environment
from conformance.bare.kit import Kit
from divvy.agent.settings import settings_from


def test_has_everything_that_an_agent_requires(tmp_path: Path) -> None:
    settings = settings_from(agent_environment(Kit(tmp_path), tmp_path, tmp_path / "scratch"))
    assert settings.own_pod == "divvy-system/divvy-agent"
    assert settings.state_folder.is_relative_to(tmp_path / "scratch")

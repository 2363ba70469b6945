"""The state of a stack whose cluster was a lab that is gone."""

import os
from pathlib import Path

import pytest

from divvy.cli.earlier_lab import forget_earlier_lab
from divvy.cli.target import target_of
from divvy.engine.providers import CLUSTER
from divvy.engine.state.stack_state import ResourceState

LAB, ELSEWHERE = "https://10.123.0.1:6443", "https://prod.example:6443"
URN = "urn:pulumi:lab::p::pulumi:providers:"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "PULUMI_CONFIG_PASSPHRASE", "")


def provider(kind: str, server: str | None) -> ResourceState:
    rest = {} if server is None else {CLUSTER: {"uid": "u", "server": server}}
    return ResourceState(
        f"{URN}{kind}::default", f"pulumi:providers:{kind}", custom=True, id="1", rest=rest
    )


@pytest.mark.usefixtures("project")
def test_forgets_only_resources_of_an_earlier_lab() -> None:
    store = target_of("lab").store()
    assert not forget_earlier_lab("lab", LAB), "there is no state"
    python, lab = provider("pulumi-python", None), provider("kubernetes", LAB)
    for providers, forgotten in (
        ([python], False),
        ([python, provider("kubernetes", ELSEWHERE)], False),
        ([python, lab, provider("other", ELSEWHERE)], False),
        ([python, lab], True),
    ):
        store.write(providers)
        assert forget_earlier_lab("lab", LAB) is forgotten
        assert store.exists is not forgotten

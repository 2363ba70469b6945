"""Helm is program and checked before anything else, and runs against no other cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.deploy.changes import Release
from divvy.deploy.helm import HelmFailed, find_helm

RELEASE = Release("divvy", "n")


def helm(folder: Path, version: str, script: str = "") -> dict[str, str]:
    """Write a Helm that says this version and else runs a script; return its environment."""
    path = folder / "helm"
    path.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo "{version}" && exit\n{script}\n')
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_leads_on_where_helm_is_missing(tmp_path: Path) -> None:
    with pytest.raises(HelmFailed, match=r"helm is not on PATH: install Helm 4 .*pulumi up"):
        find_helm(None, None, {"PATH": str(tmp_path)})


@pytest.mark.parametrize("version", ["v3.19.0+g1", "v5.0.0"])
def test_refuses_another_helm(tmp_path: Path, version: str) -> None:
    with pytest.raises(HelmFailed, match=r"helm is Helm v.*: install Helm 4"):
        find_helm(None, None, helm(tmp_path, version))


@pytest.mark.parametrize("answer", ["", "usage: helm"])
def test_refuses_a_helm_that_does_not_say_its_version(tmp_path: Path, answer: str) -> None:
    with pytest.raises(HelmFailed, match="does not say its version"):
        find_helm(None, None, helm(tmp_path, answer))


def test_names_cluster_and_release_and_lets_no_variable_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_KUBECONTEXT", "other")
    monkeypatch.setenv("HELM_NAMESPACE", "other")
    monkeypatch.setenv("HELM_DRIVER", "memory")
    monkeypatch.setenv("HELM_CACHE_HOME", "/kept")
    script = f'echo "$@" > {tmp_path}/called; env > {tmp_path}/environment'
    program = find_helm("~/k", "prod", helm(tmp_path, "v4.3.1+g1", script))
    program.upgrade(RELEASE, tmp_path, "why", force_conflicts=True, take_ownership=False)
    called = (tmp_path / "called").read_text()
    assert f"--namespace n --kubeconfig {Path.home()}/k --kube-context prod" in called
    assert "--reset-values" in called
    assert "--force-conflicts" in called
    assert "--take-ownership" not in called
    environment = (tmp_path / "environment").read_text()
    assert "HELM_CACHE_HOME=/kept" in environment
    for name in ("HELM_KUBECONTEXT", "HELM_NAMESPACE", "HELM_DRIVER"):
        assert name not in environment


def test_ends_with_helms_own_error(tmp_path: Path) -> None:
    script = 'echo "level=WARN x" >&2; echo "Error: UPGRADE FAILED: no" >&2; exit 1'
    program = find_helm(None, None, helm(tmp_path, "v4.3.1", script))
    with pytest.raises(HelmFailed, match=r"^helm upgrade failed: UPGRADE FAILED: no$"):
        program.upgrade(RELEASE, tmp_path, "", force_conflicts=False, take_ownership=False)

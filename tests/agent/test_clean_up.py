"""The last run on a node: what it removes, and what keeps it from that."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from divvy.agent import clean_up as module
from divvy.agent.clean_up import clean_up
from divvy.agent.gpu.holders import Holder
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.settings import Settings, settings_from
from lab.fakes.kubelet import AGENT_POD, FakeKubelet, fake_kubelet

FILES = (
    "lib/divvy/state.json",
    "lib/divvy/agent.owner",
    "run/divvy/tenants/0/account",
    "cdi/divvy.gpu-gpu.json",
    "cdi/divvy.gpu-limited-gpu-0123456789abcdef.json",
    "kubelet/device-plugins/divvy-gpu.sock",
    "kubelet/plugins/divvy.gpu/dra.sock",
)
OTHERS = ("cdi/nvidia.yaml", "kubelet/device-plugins/nvidia-gpu.sock", "lib/other/file")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(module, "_LOOKS", 2)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    for name in (*FILES, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "lib/divvy/agent.owner").write_text("divvy-system/divvy\n")
    folders = {
        "DIVVY_STATE_FOLDER": "lib/divvy",
        "DIVVY_SHARE_FOLDER": "run/divvy/tenants",
        "DIVVY_MPS_FOLDER": "run/divvy/mps",
        "DIVVY_CDI_FOLDER": "cdi",
        "DIVVY_PLUGIN_FOLDER": "kubelet/device-plugins",
        "DIVVY_POD_RESOURCES": "kubelet/pod-resources/kubelet.sock",
        "DIVVY_CLAIMS_FOLDER": "kubelet/plugins/divvy.gpu",
        "DIVVY_REGISTRY_FOLDER": "kubelet/plugins_registry",
    }
    paths = {name: str(tmp_path / folder) for name, folder in folders.items()}
    namespace, pod = AGENT_POD.split("/")
    return settings_from({"NODE_NAME": "n1", "NAMESPACE": namespace, "POD_NAME": pod, **paths})


def left_files(folder: Path) -> set[str]:
    return {name for name in (*FILES, *OTHERS) if (folder / name).exists()}


async def test_removes_all_files_of_the_agent_and_none_of_others(
    settings: Settings, tmp_path: Path
) -> None:
    async with fake_kubelet(tmp_path / "kubelet"):
        for name in FILES:
            (tmp_path / name).touch()  # a starting kubelet removes the sockets itself
        (tmp_path / OTHERS[1]).touch()
        assert await clean_up(settings, Path("/")) == ()
        assert left_files(tmp_path) == set(OTHERS)
        assert not (tmp_path / "lib/divvy").exists()
        assert not (tmp_path / "run/divvy").exists()
        assert await clean_up(settings, Path("/")) == ()  # of a run that was killed


async def test_unmounts_the_file_system_of_shares(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "run/divvy/tenants"
    subprocess.run(["mount", "-t", "tmpfs", "x", folder], check=True)
    try:
        async with fake_kubelet(tmp_path / "kubelet"):
            assert await clean_up(settings, Path("/")) == ()
        assert not folder.exists()
    finally:
        if folder.is_mount():
            subprocess.run(["umount", folder], check=True)


def hold(_kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    async def listed(_: object) -> object:
        holder = Holder("team/notebook", "main", "nvidia.com/gpu.shared", "GPU-0::1")
        return (holder,), frozenset([AGENT_POD])

    monkeypatch.setattr(PodResources, "listed", listed)


def have_no_pods(kubelet: FakeKubelet, _: pytest.MonkeyPatch, __: Path) -> None:
    kubelet.ready = False


def have_a_claim(_: FakeKubelet, __: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "cdi/divvy.gpu-claim-uid.json").touch()


def be_anothers(_: FakeKubelet, __: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "lib/divvy/agent.owner").write_text("other/divvy\n")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (hold, "GPUs are held by team/notebook"),
        (have_no_pods, "the kubelet does not say who holds devices"),
        (have_a_claim, "a claim has not been given back"),
        (be_anothers, "the node is served by the Divvy agent of other/divvy"),
    ],
)
async def test_leaves_all_files_that_may_be_needed(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[FakeKubelet, pytest.MonkeyPatch, Path], None],
    reason: str,
) -> None:
    async with fake_kubelet(tmp_path / "kubelet") as kubelet:
        for name in FILES:
            (tmp_path / name).touch()
        fault(kubelet, monkeypatch, tmp_path)
        (left,) = await clean_up(settings, Path("/"))
        assert left.startswith("all files: ")
        assert reason in left
        assert left_files(tmp_path) >= set(FILES)


async def test_leaves_all_files_without_an_answer_of_the_kubelet(
    settings: Settings, tmp_path: Path
) -> None:
    (left,) = await clean_up(settings, Path("/"))
    assert "the kubelet does not say who holds devices (UNAVAILABLE)" in left
    assert left_files(tmp_path) >= set(FILES)


async def test_waits_for_an_agent_that_still_runs(settings: Settings, tmp_path: Path) -> None:
    folder = os.open(tmp_path / "lib/divvy", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        (left,) = await clean_up(settings, Path("/"))
    finally:
        os.close(folder)
    assert "the node is served by the Divvy agent of divvy-system/divvy" in left

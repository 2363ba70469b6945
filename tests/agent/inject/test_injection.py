"""What the agent can give containers: what is described, with and without a hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.inject.device_files import device_files
from divvy.agent.inject.driver_files import find_driver_files
from divvy.agent.inject.hook import install_hook
from divvy.agent.inject.injection import Injection
from divvy.agent.inject.limiter import LIBRARIES, install_limiter
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.plugin.allocation import Refused, device_shares
from divvy.agent.settings import Settings, settings_from
from divvy.model.api_names import (
    CDI_FILE,
    DRIVER_LIMITED_FILE,
    limited_cdi_file,
    limited_cdi_kind,
)
from tests.agent.devices import gpu, instance, limited, snapshot

VERSION = "550.163.01"
BOTH = snapshot(gpu(0), gpu(1, mig=True, instances=(instance(3, 14, 0, 2),)))
WITH_CDI, WITHOUT = "containerd://2.3.0", "containerd://1.7.0"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Give a node whose driver is of Red Hat's family, without the agent's hook."""
    libraries = tmp_path / "root/usr/lib64"
    libraries.mkdir(parents=True)
    for name in (f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}", "libnvidia-ml.so.1"):
        (libraries / name).touch()
    folders = {
        "DIVVY_DRIVER_ROOT": "root",
        "DIVVY_CDI_FOLDER": "cdi",
        "DIVVY_STATE_FOLDER": "state",
        "DIVVY_CONTAINERD_FOLDER": "containerd",
        "DIVVY_HOOK": "no-hook",
        "DIVVY_LIMITER": "limiter",
        "DIVVY_SHARE_FOLDER": "tenants",
    }
    paths = {name: str(tmp_path / folder) for name, folder in folders.items()}
    yield settings_from(
        {"NODE_NAME": "n1", "NAMESPACE": "divvy-system", "POD_NAME": "divvy", **paths}
    )
    if (tmp_path / "tenants").is_mount():
        subprocess.run(["umount", str(tmp_path / "tenants")], check=True)


def installed(settings: Settings) -> Injection:
    injection = Injection(settings)
    injection.install()
    return injection


def written(settings: Settings) -> Any:
    return json.loads((settings.cdi_folder / CDI_FILE).read_text())


def test_grants_only_what_is_described(settings: Settings) -> None:
    injection = installed(settings)
    assert injection.described == frozenset()
    injection.renew(BOTH, WITH_CDI)
    assert injection.described == {"GPU-0", "GPU-1", "MIG-3"}
    assert injection.allocation(["GPU-0"]).cdi_names == ("divvy.gpu/gpu=GPU-0",)
    injection.renew(snapshot(replace(BOTH.gpus[0], lost=True), BOTH.gpus[1]), WITH_CDI)
    assert injection.described == {"GPU-1", "MIG-3"}
    assert [device["name"] for device in written(settings)["devices"]] == ["GPU-1", "MIG-3"]
    for runtime in (WITH_CDI, WITHOUT):
        injection.renew(snapshot(BOTH.gpus[1]), runtime)
        with pytest.raises(Refused, match="GPU-0 has no device node on this node now"):
            injection.allocation(["GPU-0"])


def test_keeps_the_last_written_specification_when_writing_fails(settings: Settings) -> None:
    injection = installed(settings)
    injection.renew(snapshot(gpu(0)), WITH_CDI)
    before = written(settings)
    (settings.cdi_folder / f".{CDI_FILE}.new").mkdir()
    with pytest.raises(InjectionProblem, match="the CDI specification is not written"):
        injection.renew(BOTH, WITH_CDI)
    assert injection.described == {"GPU-0"}
    assert written(settings) == before


def test_keeps_the_specification_whole_on_a_full_disk(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    injection = installed(settings)
    injection.renew(snapshot(gpu(0)), WITH_CDI)
    before = written(settings)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InjectionProblem, match="No space left on device"):
        injection.renew(BOTH, WITH_CDI)
    assert written(settings) == before
    assert [path.name for path in settings.cdi_folder.iterdir()] == [CDI_FILE]


def test_mounts_libraries_on_default_paths_without_a_hook(settings: Settings) -> None:
    injection = installed(settings)
    assert (
        "containers start without an updated ld.so cache and without the CUDA version check"
        in injection.problem
    )
    injection.renew(BOTH, WITH_CDI)
    edits = written(settings)["containerEdits"]
    paths = {mount["containerPath"] for mount in edits["mounts"]}
    assert {"/usr/lib64/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"} <= paths
    assert edits["hooks"] == []


def test_reports_an_unreadable_driver(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path, *_more: object, **_options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "stat", broken)
    monkeypatch.setattr(Path, "glob", broken)
    with pytest.raises(InjectionProblem, match="the driver's files cannot be read: .*Input/output"):
        find_driver_files(settings.driver_root, VERSION)
    with pytest.raises(InjectionProblem, match=r"/dev/x\* cannot be looked for: .*Input/output"):
        list(device_files(settings.device_folder)("/dev/x*"))


def test_reports_no_problem_for_an_absent_driver(settings: Settings) -> None:
    shutil.rmtree(settings.driver_root)
    assert find_driver_files(settings.driver_root, VERSION).libraries == ()


@pytest.fixture
def limiter(settings: Settings) -> None:
    """Give the image the limiter's libraries."""
    settings.limiter_folder.mkdir()
    for name in LIBRARIES:
        (settings.limiter_folder / name).write_text(f"limiter's {name}")


def hosts(mounts: Any) -> dict[str, str]:
    return {mount["containerPath"]: mount["hostPath"] for mount in mounts}


@pytest.mark.usefixtures("limiter")
def test_puts_the_limiter_before_the_driver_in_a_limited_container(settings: Settings) -> None:
    injection = installed(settings)
    injection.renew(BOTH, WITH_CDI)
    (place,) = settings.state_folder.glob("limiter-*")
    version = place.name.removeprefix("limiter-")
    spec = json.loads((settings.cdi_folder / limited_cdi_file(version)).read_text())
    assert spec["kind"] == limited_cdi_kind(version)
    assert [device["name"] for device in spec["devices"]] == ["GPU-0", "GPU-1", "MIG-3"]
    mounts = hosts(spec["containerEdits"]["mounts"])
    for stem in ("libcuda", "libnvidia-ml"):
        ours = Path(mounts[f"/usr/lib64/{stem}.so.1"])
        assert ours.read_text() == f"limiter's {stem}.so.1"
        assert ours.parent.parent == settings.state_folder
        behind = mounts[f"/usr/lib/divvy/driver/{stem}-driver.so.1"]
        assert behind == f"/usr/lib64/{stem}.so.{VERSION}"
        # Of two files with one SONAME, ldconfig would take the versioned one.
        assert f"/usr/lib64/{stem}.so.{VERSION}" not in mounts


@pytest.mark.usefixtures("limiter")
@pytest.mark.parametrize("runtime", [WITH_CDI, WITHOUT])
def test_gives_a_share_its_own_account_and_pages(settings: Settings, runtime: str) -> None:
    injection = installed(settings)
    injection.renew(BOTH, runtime)
    injection.by_cdi = runtime == WITH_CDI
    resource, ids = limited(1, 4, 3000, "cap"), ["GPU-0::2"]
    shares = device_shares(resource, ids)
    answer = injection.limited_allocation(ids, shares)
    mounts = {mount.path: mount for mount in answer.edits.mounts}
    if runtime == WITH_CDI:
        (place,) = settings.state_folder.glob("limiter-*")
        kind = limited_cdi_kind(place.name.removeprefix("limiter-"))
        assert answer.cdi_names == (f"{kind}=GPU-0",)
        assert answer.edits.nodes == ()
        assert "/usr/lib64/libcuda.so.1" not in mounts
    else:
        assert answer.cdi_names == ()
        assert [node.path for node in answer.edits.nodes] == ["/dev/nvidia0"]
        assert "limiter-" in mounts["/usr/lib64/libcuda.so.1"].host
    share = {
        path.removeprefix("/usr/lib/divvy/share/"): mount
        for path, mount in mounts.items()
        if path.startswith("/usr/lib/divvy/share/")
    }
    page = shares[0].page
    assert {name: mount.read_only for name, mount in share.items()} == {
        "limits": True,
        "account": False,
        "GPU-0": True,
        page: False,
    }
    assert "memory 3145728000 compute cap weight 25" in Path(share["limits"].host).read_text()
    assert Path(share["account"].host).stat().st_mode & 0o777 == 0o666
    assert Path(share[page].host).parent == Path(share["GPU-0"].host)
    # As for an init container, then for its pod's own, before either starts.
    assert injection.limited_allocation(ids, shares) == answer


@pytest.mark.usefixtures("limiter")
@pytest.mark.parametrize("runtime", [WITH_CDI, WITHOUT])
def test_keeps_the_limiter_of_a_share_when_a_container_restarts(
    settings: Settings, runtime: str
) -> None:
    """The kubelet keeps what Allocate answered; a later image's limiter may know other files."""
    injection = installed(settings)
    injection.renew(BOTH, runtime)
    shares = device_shares(limited(1, 4, 3000), ["GPU-0::2"])
    answer = injection.limited_allocation(["GPU-0::2"], shares)
    for name in LIBRARIES:
        (settings.limiter_folder / name).write_text("of a new image")
    shutil.rmtree(settings.cdi_folder)  # as a reboot does
    installed(settings).renew(BOTH, runtime)
    mounts = {mount.path: mount.host for mount in answer.edits.mounts}
    specs = [json.loads(file.read_text()) for file in settings.cdi_folder.iterdir()]
    for name in answer.cdi_names:
        (spec,) = [
            named_spec for named_spec in specs if named_spec["kind"] == name.partition("=")[0]
        ]
        mounts |= hosts(spec["containerEdits"]["mounts"])
    for name in LIBRARIES:
        assert Path(mounts[f"/usr/lib64/{name}"]).read_text() == f"limiter's {name}"


def test_refuses_a_share_without_the_limiter(settings: Settings) -> None:
    injection = installed(settings)
    injection.renew(BOTH, WITH_CDI)
    shares = device_shares(limited(1, 4, 3000), ["GPU-0::2"])
    with pytest.raises(Refused, match="the limiter is not installed: .*libcuda.so.1"):
        injection.limited_allocation(["GPU-0::2"], shares)


def test_reports_no_change_after_a_retry_without_success(settings: Settings) -> None:
    """Else the node would be reconciled at each, for as long as its image has no limiter."""
    injection = Injection(settings)
    assert injection.install()
    assert not injection.install()
    settings.limiter_folder.mkdir()
    for name in LIBRARIES:
        (settings.limiter_folder / name).touch()
    assert injection.install()


@pytest.mark.usefixtures("limiter")
def test_restores_removed_installed_files(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them no container with a device would start."""
    program = settings.state_folder.parent / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(install_hook, "__defaults__", (program,))
    injection = Injection(replace(settings, hook_program=program))
    injection.install()
    injection.renew(BOTH, WITH_CDI)
    assert injection.installed
    installed = sorted(settings.state_folder.glob("*/*"))
    assert len(installed) == 4
    shutil.rmtree(settings.state_folder)
    (settings.cdi_folder / CDI_FILE).unlink()
    assert not injection.installed
    injection.install()
    injection.renew(BOTH, WITH_CDI)
    assert sorted(settings.state_folder.glob("*/*")) == installed
    assert written(settings)["devices"]


@pytest.mark.usefixtures("limiter")
def test_replaces_changed_installed_libraries(settings: Settings) -> None:
    first = install_limiter(settings.limiter_folder, settings.state_folder)
    library = first.folder / "libcuda.so.1"
    library.chmod(0o755)
    library.write_text("another")
    assert install_limiter(settings.limiter_folder, settings.state_folder) == first
    assert library.read_text() == "limiter's libcuda.so.1"
    assert library.stat().st_mode & 0o777 == 0o555
    (settings.limiter_folder / "libcuda.so.1").write_text("of a new image")
    assert install_limiter(settings.limiter_folder, settings.state_folder) != first
    assert library.exists()  # for containers that start again


@pytest.mark.usefixtures("limiter")
def test_removes_limiters_that_no_container_can_start_with(settings: Settings) -> None:
    versions = []
    for text in ("first image", "second image", "third image"):
        (settings.limiter_folder / "libcuda.so.1").write_text(text)
        injection = installed(settings)
        injection.renew(BOTH, WITH_CDI)
        versions.append(injection.limiter)
    _, second, third = versions

    def left() -> tuple[set[str], set[str]]:
        files = settings.cdi_folder.glob("divvy.gpu-limited-gpu-*.json")
        return (
            {
                path.name.removeprefix("limiter-")
                for path in settings.state_folder.glob("limiter-*")
            },
            {path.stem.removeprefix("divvy.gpu-limited-gpu-") for path in files},
        )

    assert left() == (set(versions), set(versions))
    injection.remove_limiters(frozenset({second}))
    assert left() == ({second, third}, {second, third})
    injection.renew(BOTH, WITH_CDI)
    assert left() == ({second, third}, {second, third})
    # Of an image whose own is not installed, nothing is known.
    Injection(settings).remove_limiters(frozenset())
    assert left() == ({second, third}, {second, third})


@pytest.mark.usefixtures("limiter")
def test_replaces_folders_in_place_of_installed_libraries(settings: Settings) -> None:
    """Where the source of a mount is gone, the container runtime makes a folder."""
    injection = installed(settings)
    (library,) = settings.state_folder.glob("limiter-*/libcuda.so.1")
    library.unlink()
    library.mkdir()
    injection.install()
    assert library.read_text() == "limiter's libcuda.so.1"


def test_refuses_a_share_until_the_specification_has_the_limiter(settings: Settings) -> None:
    injection = installed(settings)
    injection.renew(BOTH, WITH_CDI)
    settings.limiter_folder.mkdir()
    for name in LIBRARIES:
        (settings.limiter_folder / name).touch()
    injection.install()
    (place,) = settings.state_folder.glob("limiter-*")
    name = limited_cdi_file(place.name.removeprefix("limiter-"))
    scratch = settings.cdi_folder / f".{name}.new"
    scratch.mkdir()  # no write succeeds
    with pytest.raises(InjectionProblem, match="the CDI specification is not written"):
        injection.renew(BOTH, WITH_CDI)
    shares = device_shares(limited(1, 4, 3000), ["GPU-0::2"])
    assert "the limiter is not installed" in injection.limiter_problem
    with pytest.raises(Refused, match="the limiter is not installed"):
        injection.limited_allocation(["GPU-0::2"], shares)
    scratch.rmdir()
    injection.renew(BOTH, WITH_CDI)
    assert injection.limiter_problem == ""
    assert injection.limited_allocation(["GPU-0::2"], shares).cdi_names


def test_limits_by_the_driver_only_once_that_is_described(settings: Settings) -> None:
    """Allocate named a CDI kind whose file was not written: the container could not start."""
    program = settings.hook_program.with_name("hook")
    shutil.copy("/bin/true", program)
    (settings.driver_root / "usr/bin").mkdir()
    (settings.driver_root / "usr/bin/nvidia-smi").touch()
    for library in ("libcuda.so", "libnvidia-ml.so"):
        (settings.driver_root / f"usr/lib64/{library}.615.71.09").touch()
    groups = settings.state_folder.with_name("groups")
    groups.mkdir()
    (groups / "cgroup.controllers").touch()
    newer = replace(snapshot(gpu(0)), driver_version="615.71.09")
    changed = replace(
        settings, hook_program=program, ldconfig_program=Path("/bin/true"), cgroup_folder=groups
    )
    injection = installed(changed)
    injection.renew(snapshot(gpu(0)), WITH_CDI)
    # For containers from before a boot that took the specifications and brought an older driver.
    assert (settings.cdi_folder / DRIVER_LIMITED_FILE).is_file()
    obstacle = settings.cdi_folder / f".{DRIVER_LIMITED_FILE}.new"
    obstacle.mkdir()
    with pytest.raises(InjectionProblem, match="the CDI specification is not written"):
        injection.renew(newer, WITH_CDI)
    with pytest.raises(Refused, match="is not written"):
        injection.driver_limited_allocation(["GPU-0::0"], ())
    obstacle.rmdir()
    injection.renew(newer, WITH_CDI)
    assert (settings.cdi_folder / DRIVER_LIMITED_FILE).is_file()
    assert injection.driver_limits_problem == ""
    injection.renew(snapshot(gpu(0)), WITH_CDI)
    assert "limits no memory" in injection.driver_limits_problem


def test_tells_other_device_nodes_before_anything_could_be_written(settings: Settings) -> None:
    """An agent that starts beside a full /run has still to withdraw what claims were given."""
    injection = installed(settings)
    before = injection.described_as(BOTH)
    lost, other = BOTH.gpus
    after = snapshot(replace(lost, lost=True), replace(other, minor=0))
    assert injection.described_as(after) != before

"""NodeRuntime's transforms: CDI on, everything else as it was."""

from __future__ import annotations

import tomllib

import pytest

from divvy.agent.node_runtime import crio
from divvy.agent.node_runtime.containerd import CannotConfigure, exposed, files_for, missing

VERSION_2 = """\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause:3.9"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
"""
VERSION_3 = """\
imports = [
  "/etc/containerd/other.d/*.toml",
]
version = 3

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = false
"""
VERSION_4 = """\
version = 4
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = false
"""
TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}


@pytest.mark.parametrize("text", [VERSION_2, VERSION_3, VERSION_4])
def test_the_drop_in_has_the_root_files_version_and_switches_cdi_on(text: str) -> None:
    drop_in = tomllib.loads(files_for(text).drop_in)
    version = tomllib.loads(text)["version"]
    assert drop_in["version"] == version
    table = drop_in["plugins"][TABLES.get(version, TABLES[3])]
    assert table["enable_cdi"] is True
    assert "/var/run/cdi" in table["cdi_spec_dirs"]


def test_the_drop_in_carries_the_roots_whole_table() -> None:
    table = tomllib.loads(files_for(VERSION_2).drop_in)["plugins"][TABLES[2]]
    assert table["sandbox_image"] == "pause:3.9"
    assert table["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True


@pytest.mark.parametrize("text", [VERSION_2, VERSION_3])
def test_the_root_file_gets_the_import_and_keeps_every_other_line(text: str) -> None:
    root = files_for(text).root
    assert root is not None
    before, after = tomllib.loads(text), tomllib.loads(root)
    assert after.pop("imports") == [*before.pop("imports", []), "/etc/containerd/conf.d/*.toml"]
    assert after == before


def test_a_root_file_that_imports_already_is_not_touched() -> None:
    assert files_for(VERSION_4).root is None


def test_without_a_root_file_there_is_one_with_the_import_alone() -> None:
    assert tomllib.loads(files_for(None).root or "") == {
        "version": 4,
        "imports": ["/etc/containerd/conf.d/*.toml"],
    }


@pytest.mark.parametrize("text", ["", "version = 1\n", "version = 9\n"])
def test_other_versions_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(CannotConfigure, match="containerd config migrate"):
        files_for(text)


def test_what_is_missing_is_named() -> None:
    off = '[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\ncdi_spec_dirs = []\n'
    on = (
        '[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = true\n'
        'cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
    )
    assert missing(off) == ("enable_cdi is off", "cdi_spec_dirs lacks /var/run/cdi")
    assert missing(on) == ()


def test_the_nvidia_runtime_as_default_is_reported() -> None:
    dump = """
    [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
    """
    assert "sees every GPU" in (exposed(dump) or "")
    assert exposed(dump.replace('"nvidia"', '"runc"')) is None


def test_crio_is_on_unless_switched_off() -> None:
    assert crio.missing(crio.drop_in()) == ()
    assert crio.missing("[crio.runtime]\n") == ()
    assert crio.missing("[crio.runtime]\nenable_cdi = false\n") == ("enable_cdi is off",)

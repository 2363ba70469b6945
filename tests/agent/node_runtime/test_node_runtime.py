"""NodeRuntime's transforms: CDI on, everything else as it was."""

from __future__ import annotations

import tomllib

import pytest

from divvy.agent.node_runtime import crio
from divvy.agent.node_runtime.containerd import (
    CannotConfigure,
    candidates,
    exposed,
    missing,
    other_differences,
    started_elsewhere,
)

OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
VERSION_2 = """\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "pause:3.9"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
"""
VERSION_3 = """\
imports = [
  "/etc/containerd/other.d/*.toml",   # ours, since 2024
  # "/etc/containerd/off.d/*.toml",
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
DUMP_2 = f"""\
version = 2
[plugins."{OLD}"]
enable_cdi = false
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."{OLD}".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
DUMP_4 = DUMP_2.replace("version = 2", "version = 4").replace(OLD, NEW)
TRIAL = "/run/trial/90-divvy.toml"
IMPORT = "/etc/containerd/conf.d/90-divvy*.toml"


@pytest.mark.parametrize(("text", "table"), [(VERSION_2, OLD), (VERSION_3, NEW), (VERSION_4, NEW)])
def test_writes_a_small_drop_in_of_its_own_keys_in_the_root_files_version(
    text: str, table: str
) -> None:
    small, _ = candidates(text, DUMP_4, TRIAL)
    assert tomllib.loads(small.drop_in) == {
        "version": tomllib.loads(text)["version"],
        "plugins": {table: {"enable_cdi": True, "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}},
    }


def test_writes_a_large_drop_in_of_the_effective_table() -> None:
    _, large = candidates("version = 2\n", DUMP_2, TRIAL)
    table = tomllib.loads(large.drop_in)["plugins"][OLD]
    assert table["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
    assert table["enable_cdi"] is True


def test_keeps_the_administrators_cdi_folders() -> None:
    dump = DUMP_4.replace('["/etc/cdi", "/var/run/cdi"]', '["/opt/cdi"]')
    for files in candidates(VERSION_4, dump, TRIAL):
        table = tomllib.loads(files.drop_in)["plugins"][NEW]
        assert table["cdi_spec_dirs"] == ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]


@pytest.mark.parametrize("text", [VERSION_2, VERSION_3, VERSION_3.replace("\n", "\r\n")])
def test_adds_the_import_and_keeps_every_byte_of_the_root_file(text: str) -> None:
    root = candidates(text, DUMP_4, TRIAL)[0].root
    assert root is not None
    before, after = tomllib.loads(text), tomllib.loads(root)
    assert after.pop("imports") == [*before.pop("imports", []), IMPORT]
    assert after == before
    added = [f'imports = ["{IMPORT}"]\r\n', f'imports = ["{IMPORT}"]\n', f' "{IMPORT}"']
    assert text in [root.replace(part, "", 1) for part in added]


def test_imports_only_its_own_drop_in() -> None:
    """What lies in conf.d and was not imported, stays so."""
    root = tomllib.loads(candidates(VERSION_2, DUMP_4, TRIAL)[0].root or "")
    assert root["imports"] == [IMPORT]


@pytest.mark.parametrize(
    "imports",
    [
        '["/etc/containerd/conf.d/*.toml"]',
        '["conf.d/*.toml"]',
        '["./x/../conf.d/9*.toml"]',
        '["other", "/etc/containerd/conf.d/90-divvy.toml"]',
    ],
)
def test_leaves_a_root_file_alone_that_imports_already(imports: str) -> None:
    assert candidates(f"version = 3\nimports = {imports}\n", DUMP_4, TRIAL)[0].root is None


@pytest.mark.parametrize("imports", ['["."]', '[""]', '["/etc/containerd/**.toml"]', "[]"])
def test_keeps_odd_imports(imports: str) -> None:
    files = candidates(f"version = 3\nimports = {imports}\n", DUMP_4, TRIAL)[0]
    before = tomllib.loads(f"x = {imports}")["x"]
    assert tomllib.loads(files.root or "")["imports"] == [*before, IMPORT]


@pytest.mark.parametrize("imports", ["5", '"conf.d/*.toml"', "[5]", "{a = 1}", "true"])
def test_refuses_imports_that_are_no_list_of_paths(imports: str) -> None:
    with pytest.raises(CannotConfigure, match="a list of paths is expected"):
        candidates(f"version = 3\nimports = {imports}\n", DUMP_4, TRIAL)


@pytest.mark.parametrize("text", ["version = ", "a = 1\na = 2\n", "x = " + "[" * 5000])
def test_refuses_a_root_file_that_is_no_toml(text: str) -> None:
    with pytest.raises(CannotConfigure, match="config.toml cannot be read"):
        candidates(text, DUMP_4, TRIAL)


def test_imports_in_the_trial_what_the_root_file_imports() -> None:
    trial = tomllib.loads(candidates(VERSION_3, DUMP_4, TRIAL)[0].trial)
    assert trial["imports"] == ["/etc/containerd/other.d/*.toml", TRIAL]
    relative = 'version = 3\nimports = ["a.toml"]\n'
    assert tomllib.loads(candidates(relative, DUMP_4, TRIAL)[0].trial)["imports"] == [
        "/etc/containerd/a.toml",
        TRIAL,
    ]


@pytest.mark.parametrize(("dump", "version"), [(DUMP_2, 2), (DUMP_4, 4)])
def test_creates_a_root_file_in_this_containerds_version(dump: str, version: int) -> None:
    files = candidates(None, dump, TRIAL)[0]
    assert tomllib.loads(files.root or "") == {"version": version, "imports": [IMPORT]}
    assert tomllib.loads(files.drop_in)["version"] == version


@pytest.mark.parametrize(
    "text", ["", "version = 1\n", "version = 9\n", "version = [2]\n", 'version = "2"']
)
def test_refuses_other_versions_with_a_remedy(text: str) -> None:
    with pytest.raises(CannotConfigure, match="containerd config migrate"):
        candidates(text, DUMP_4, TRIAL)


def test_names_what_is_missing() -> None:
    off = f'[plugins."{NEW}"]\nenable_cdi = false\ncdi_spec_dirs = []\n'
    on = f'[plugins."{NEW}"]\nenable_cdi = true\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
    assert missing(off) == ("enable_cdi is off", "cdi_spec_dirs lacks /var/run/cdi")
    assert missing(on) == ()


def test_misses_no_switch_if_cdi_is_always_on() -> None:
    """The switch is gone in containerd 2.4; 1.6 has no CDI, and neither of the two keys."""
    dropped = f'version = 4\n[plugins."{NEW}"]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'
    assert missing(dropped) == ()
    elsewhere = dropped.replace('"/var/run/cdi"', '"/opt/cdi"')
    assert missing(elsewhere) == ("cdi_spec_dirs lacks /var/run/cdi",)
    small, _ = candidates(VERSION_4, elsewhere, TRIAL)
    assert "enable_cdi" not in tomllib.loads(small.drop_in)["plugins"][NEW]
    assert missing(f'[plugins."{OLD}"]\nsandbox_image = "p"\n')[0] == "enable_cdi is off"


@pytest.mark.parametrize(
    "dump",
    [
        "plugins = 5\n",
        f'plugins."{NEW}" = 5\n',
        f'[plugins."{NEW}"]\nenable_cdi = "yes"\ncdi_spec_dirs = 5\ncontainerd = [1]\n',
        f'[plugins."{NEW}".containerd]\nruntimes = "none"\ndefault_runtime_name = []\n',
    ],
)
def test_reads_malformed_tables_without_raising(dump: str) -> None:
    assert missing(dump)[0] == "enable_cdi is off"
    assert exposed(dump) is None
    assert other_differences(dump, dump) == ()


def test_names_every_other_difference() -> None:
    after = candidates(VERSION_4, DUMP_4, TRIAL)[1].drop_in
    assert other_differences(DUMP_4, after) == ()
    lost = after.replace("SystemdCgroup = true", "SystemdCgroup = false") + "[debug]\nlevel = 'x'\n"
    assert other_differences(DUMP_4, lost) == (
        "debug.level",
        f"plugins.{NEW}.containerd.runtimes.runc.options.SystemdCgroup",
    )
    dump = DUMP_4.replace('["/etc/cdi",', '["/opt/cdi",')
    assert other_differences(dump, DUMP_4) == ("cdi_spec_dirs (/opt/cdi)",)


@pytest.mark.parametrize(
    ("command", "elsewhere"),
    [
        ("containerd", None),
        ("containerd --log-level debug", None),
        ("containerd --config /etc/containerd/config.toml", None),
        ("containerd -c /opt/config.toml", "-c /opt/config.toml"),
        ("containerd --config=/opt/config.toml", "--config /opt/config.toml"),
        ("containerd --address /run/other.sock", "--address /run/other.sock"),
    ],
)
def test_recognises_a_containerd_with_a_file_of_its_own(
    command: str, elsewhere: str | None
) -> None:
    assert started_elsewhere(command.split()) == elsewhere


def test_reports_the_nvidia_runtime_as_default() -> None:
    dump = f"""
    [plugins."{NEW}".containerd]
    default_runtime_name = "nvidia"
    [plugins."{NEW}".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/nvidia-container-runtime"
    """
    assert "sees every GPU" in (exposed(dump) or "")
    assert exposed(dump.replace('"nvidia"', '"runc"')) is None


def test_treats_cdi_as_on_in_crio_unless_switched_off() -> None:
    assert crio.missing(crio.drop_in()) == ()
    assert crio.missing("[crio.runtime]\n") == ()
    assert crio.missing("[crio.runtime]\nenable_cdi = false\n") == ("enable_cdi is off",)
    assert crio.missing("[crio]\nruntime = 5\n") == ()
    with pytest.raises(CannotConfigure, match="cannot be read"):
        crio.missing("[crio")

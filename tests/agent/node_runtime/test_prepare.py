"""Preparing a node: tried first, rolled back when the runtime does not come back.

The files are real. The runtime is a model of how containerd reads them: imports in order, tables
merged (since 2.1) or replaced (before), defaults below; checked against containerd 1.7.27, 2.0.5
and 2.3.7.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from divvy.agent.host_path import HostFailed
from divvy.agent.node_runtime import crio
from divvy.agent.node_runtime.containerd import DROP_IN, ROOT_FILE, CannotConfigure
from divvy.agent.node_runtime.host import Host, Runtime
from divvy.agent.node_runtime.host_files import EditConflict
from divvy.agent.node_runtime.prepare import prepare_containerd, prepare_crio

TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
ADMIN_DROP_IN = "/etc/containerd/conf.d/10-admin.toml"


def off(version: int = 3, imports: str = "") -> str:
    return f'version = {version}\n{imports}[plugins."{TABLES[version]}"]\nenable_cdi = false\n'


def runc(version: int, systemd: bool) -> str:
    at = f'plugins."{TABLES[version]}".containerd.runtimes.runc.options'
    return f"version = {version}\n[{at}]\nSystemdCgroup = {str(systemd).lower()}\n"


class ModelHost(Host):
    """A host of real files and a modelled runtime."""

    def __init__(self, root: Path, *, version: int = 3, merges: bool = True) -> None:
        super().__init__(root)
        self.set(version=version, merges=merges, restarts=[], calls=[], between=lambda: None)
        self.set(is_unit=True)
        (root / "etc/containerd").mkdir(parents=True)
        (root / "run").mkdir()
        self.write(ROOT_FILE, off(version))

    def set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def everything(self) -> dict[str, bytes]:
        files = (path for path in self.root.rglob("*") if path.is_file())
        return {"/" + str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def runtime(self, unit: str, socket: str) -> Runtime:
        return Runtime(unit, socket, "/usr/bin/it", ("it",), self.is_unit)

    def run(self, program: str, *arguments: str, seconds: float = 10) -> str:
        if arguments == ("config",):
            place = self.path(crio.DROP_IN)
            return place.read_text() if place.exists() else "[crio.runtime]\nenable_cdi = false\n"
        config = arguments[1] if arguments[0] == "--config" else ROOT_FILE
        assert self.files.exists(config) is (arguments[-1] == "dump"), "failed to load TOML"
        return tomli_w.dumps(self.effective(config))

    def effective(self, config: str) -> dict[str, Any]:
        plugins: dict[str, Any] = {}
        pending = [config] if self.files.exists(config) else []
        while pending:
            path = pending.pop(0)
            file = self.files.read(path)
            assert file is not None
            read = tomllib.loads(file.content.decode())
            assert read["version"] <= self.version, "unsupported configuration version"
            for table, content in read.get("plugins", {}).items():
                key = TABLES[self.version] if table in TABLES.values() else table
                plugins[key] = merged(plugins.get(key, {}), content) if self.merges else content
            for pattern in read.get("imports", []):
                paths = sorted(self.root.glob(pattern.lstrip("/")))
                pending += ["/" + str(path.relative_to(self.root)) for path in paths]
        default = {
            "enable_cdi": False,
            "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"],
            "containerd": {"runtimes": {"runc": {"options": {"SystemdCgroup": False}}}},
        }
        cri = TABLES[self.version]
        plugins[cri] = merged(default, plugins.get(cri, {}))
        return {"version": self.version, "imports": [config], "plugins": plugins}

    def restart(self, runtime: Runtime, seconds: float = 30.0) -> None:
        self.calls.append("restart")
        self.between()
        if self.restarts and not self.restarts.pop(0):
            raise HostFailed("the runtime did not come back")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


@pytest.fixture
def host(tmp_path: Path) -> ModelHost:
    return ModelHost(tmp_path / "host")


def text(host: ModelHost, path: str) -> str:
    return host.path(path).read_text()


def test_enables_cdi_and_reports_it(host: ModelHost) -> None:
    assert prepare_containerd(host, change=False) == ("enable_cdi is off",)
    assert not host.path(DROP_IN).exists()
    assert prepare_containerd(host) == ("enable_cdi is off",)
    assert "enable_cdi = true" in text(host, DROP_IN)
    assert "conf.d" in text(host, ROOT_FILE)
    assert host.calls == ["restart"]


def test_changes_nothing_on_a_second_run(host: ModelHost) -> None:
    prepare_containerd(host)
    before, host.calls[:] = host.everything(), []
    assert prepare_containerd(host) == ()
    assert host.everything() == before
    assert host.calls == []


def test_completes_a_rollback_when_containerd_does_not_come_back(host: ModelHost) -> None:
    before = host.everything()
    host.restarts[:] = [False, True]
    with pytest.raises(HostFailed, match="did not come back"):
        prepare_containerd(host)
    assert host.everything() == before
    assert host.calls == ["restart", "restart"]


def test_installs_no_files_that_containerd_reads_differently(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.everything()
    dump = host.effective(ROOT_FILE)
    monkeypatch.setattr(ModelHost, "effective", lambda *_: dump)
    with pytest.raises(HostFailed, match="interprets the new files differently: enable_cdi is off"):
        prepare_containerd(host)
    assert host.everything() == before
    assert host.calls == []


def test_notices_a_later_overriding_file_before_any_restart(host: ModelHost) -> None:
    host.write(ROOT_FILE, off(3, 'imports = ["/etc/containerd/conf.d/*.toml"]\n'))
    host.write("/etc/containerd/conf.d/99-last.toml", off(3))
    before = host.everything()
    with pytest.raises(
        HostFailed, match=r"after the change: enable_cdi is off; .*/99-last.toml is"
    ):
        prepare_containerd(host)
    assert host.everything() == before
    assert host.calls == []


def test_refuses_a_distribution_with_its_own_layout_by_name(host: ModelHost) -> None:
    host.write("/var/lib/rancher/k3s/x", "")
    with pytest.raises(CannotConfigure, match="k3s"):
        prepare_containerd(host)


@pytest.mark.parametrize("change", [False, True])
def test_stops_nothing_that_would_not_be_restarted(host: ModelHost, change: bool) -> None:
    host.set(is_unit=False)
    before = host.everything()
    with pytest.raises(CannotConfigure, match="nothing is known to restart"):
        prepare_containerd(host, change=change)
    assert host.everything() == before


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("merges", [False, True])
def test_keeps_settings_of_other_drop_ins(tmp_path: Path, version: int, merges: bool) -> None:
    host = ModelHost(tmp_path / "host", version=version, merges=merges)
    host.write(ROOT_FILE, off(version, 'imports = ["/etc/containerd/conf.d/*.toml"]\n'))
    host.write(ADMIN_DROP_IN, runc(version, systemd=True))
    before, root = host.effective(ROOT_FILE), text(host, ROOT_FILE)
    prepare_containerd(host)
    after = host.effective(ROOT_FILE)
    table = after["plugins"][TABLES[version]]
    assert table.pop("enable_cdi") is True
    assert before["plugins"][TABLES[version]].pop("enable_cdi") is False
    assert after == before
    assert table["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is True
    assert text(host, ROOT_FILE) == root
    assert text(host, ADMIN_DROP_IN) == runc(version, systemd=True)
    # Where tables are merged, ours says no more than it must: what changes later, counts.
    assert ("SystemdCgroup" in text(host, DROP_IN)) is not merges


def test_leaves_unimported_drop_ins_unimported(host: ModelHost) -> None:
    host.write(ADMIN_DROP_IN, runc(3, systemd=True))
    prepare_containerd(host)
    options = host.effective(ROOT_FILE)["plugins"][TABLES[3]]["containerd"]["runtimes"]["runc"]
    assert options == {"options": {"SystemdCgroup": False}}


@pytest.mark.parametrize("version", [2, 3])
def test_writes_a_version_that_containerd_reads_without_a_root_file(
    tmp_path: Path, version: int
) -> None:
    host = ModelHost(tmp_path / "host", version=version)
    host.path(ROOT_FILE).unlink()
    assert prepare_containerd(host) == ("enable_cdi is off",)
    assert tomllib.loads(text(host, ROOT_FILE))["version"] == version
    assert prepare_containerd(host) == ()


@pytest.mark.parametrize("target", ["/srv/containerd/real.toml", "../../srv/containerd/real.toml"])
@pytest.mark.parametrize("comes_back", [True, False])
def test_keeps_a_link_and_changes_its_target(
    host: ModelHost, target: str, comes_back: bool
) -> None:
    host.path(ROOT_FILE).unlink()
    host.write("/srv/containerd/real.toml", off(3) + "# mine\n")
    host.path(ROOT_FILE).symlink_to(target)
    before = host.everything()
    if comes_back:
        prepare_containerd(host)
        assert text(host, "/srv/containerd/real.toml").endswith(off(3) + "# mine\n")
        assert "imports" in text(host, "/srv/containerd/real.toml")
    else:
        host.restarts[:] = [False, True]
        with pytest.raises(HostFailed):
            prepare_containerd(host)
        assert host.everything() == before
    assert str(host.path(ROOT_FILE).readlink()) == target


def test_refuses_a_dangling_link(host: ModelHost) -> None:
    host.path(ROOT_FILE).unlink()
    host.path(ROOT_FILE).symlink_to("/nowhere.toml")
    with pytest.raises(HostFailed, match=r"config.toml is a link to /nowhere.toml, which does not"):
        prepare_containerd(host)
    assert host.path(ROOT_FILE).is_symlink()


def edit(host: ModelHost, path: str = ROOT_FILE) -> Callable[[], None]:
    return lambda: host.write(path, off(3) + "# the administrator's\n")


def test_keeps_an_edit_made_before_the_write(host: ModelHost) -> None:
    with pytest.raises(
        EditConflict, match=r"config.toml was changed by someone else in the meantime"
    ):
        prepare_containerd(host, require_turn=edit(host))
    assert text(host, ROOT_FILE) == off(3) + "# the administrator's\n"
    assert not host.path(DROP_IN).exists()
    assert host.calls == []


@pytest.mark.parametrize("path", [ROOT_FILE, DROP_IN])
def test_keeps_an_edit_made_before_the_rollback_and_reports_it(host: ModelHost, path: str) -> None:
    host.set(between=edit(host, path))
    host.restarts[:] = [False, True]
    with pytest.raises(HostFailed, match=r"did not come back; .*changed by .*left unchanged"):
        prepare_containerd(host)
    assert text(host, path) == off(3) + "# the administrator's\n"


def test_begins_nothing_while_another_node_has_the_lease(host: ModelHost) -> None:
    def lost() -> None:
        raise HostFailed("the Lease is another's")

    before = host.everything()
    with pytest.raises(HostFailed, match="another's"):
        prepare_containerd(host, require_turn=lost)
    assert host.everything() == before


def test_completes_an_interrupted_restart(host: ModelHost) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        # As SIGKILL leaves it: nothing is undone.
        host.set(between=lambda: None, left=host.everything())
        raise Killed

    host.set(between=kill)
    with pytest.raises(Killed):
        prepare_containerd(host)
    for path, content in host.left.items():
        host.path(path).write_bytes(content)
    host.calls[:] = []
    assert prepare_containerd(host, change=False) == ("the restart after the change was cut short",)
    assert prepare_containerd(host) == ("the restart after the change was cut short",)
    assert host.calls == ["restart"]
    assert prepare_containerd(host) == ()


def test_restarts_again_after_an_error_that_nobody_foresaw(host: ModelHost) -> None:
    """The files are new and nobody has seen the runtime come back: the node is not prepared yet."""

    def fail() -> None:
        host.set(between=lambda: None)
        raise RuntimeError("unforeseen")

    host.set(between=fail)
    with pytest.raises(RuntimeError):
        prepare_containerd(host)
    assert prepare_containerd(host, change=False)
    prepare_containerd(host)
    assert host.calls == ["restart", "restart"]
    assert prepare_containerd(host, change=False) == ()
    assert "enable_cdi = true" in text(host, DROP_IN)


def test_restarts_again_if_the_rollback_left_a_file_and_no_runtime(host: ModelHost) -> None:
    """Somebody has edited the new file meanwhile: by what it says, nothing is missing."""
    edited = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = true\n'
    host.write(ROOT_FILE, off(3, 'imports = ["/etc/containerd/conf.d/*.toml"]\n'))
    host.set(between=lambda: host.write(DROP_IN, edited))
    host.restarts[:] = [False, False]
    with pytest.raises(HostFailed, match="left unchanged; the runtime did not come back"):
        prepare_containerd(host)
    assert prepare_containerd(host, change=False)
    prepare_containerd(host)
    assert host.calls == ["restart"] * 3
    assert prepare_containerd(host, change=False) == ()


def test_keeps_mode_and_attributes_and_a_drop_in_as_private(host: ModelHost) -> None:
    place = host.path(ROOT_FILE)
    place.chmod(0o600)
    os.setxattr(place, "user.label", b"system_u:object_r:container_config_t:s0")
    prepare_containerd(host)
    for path in (ROOT_FILE, DROP_IN):
        assert host.path(path).stat().st_mode & 0o7777 == 0o600
        assert os.getxattr(host.path(path), "user.label").startswith(b"system_u")


def test_leaves_nothing_of_a_trial(host: ModelHost) -> None:
    prepare_containerd(host)
    assert list((host.root / "run").iterdir()) == []


def test_writes_a_crio_drop_in_if_cdi_was_switched_off(host: ModelHost) -> None:
    assert prepare_crio(host, change=False) == ("enable_cdi is off",)
    assert not host.path(crio.DROP_IN).exists()
    assert prepare_crio(host) == ("enable_cdi is off",)
    assert text(host, crio.DROP_IN) == crio.drop_in()
    assert prepare_crio(host) == ()


def test_completes_an_interrupted_restart_of_crio(host: ModelHost) -> None:
    prepare_crio(host)
    host.write("/run/divvy-node-runtime-unfinished", "")
    host.calls[:] = []
    assert prepare_crio(host) == ("the restart after the change was cut short",)
    assert host.calls == ["restart"]
    assert prepare_crio(host) == ()


def test_completes_a_rollback_of_the_drop_in_when_crio_does_not_come_back(host: ModelHost) -> None:
    host.restarts[:] = [False, True]
    with pytest.raises(HostFailed, match="did not come back"):
        prepare_crio(host)
    assert not host.path(crio.DROP_IN).exists()
    assert host.restarts == []

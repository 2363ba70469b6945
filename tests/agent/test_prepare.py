"""Preparing a node: validated first, rolled back when containerd does not come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from divvy.agent.node_runtime import crio
from divvy.agent.node_runtime.containerd import DROP_IN, CannotConfigure
from divvy.agent.node_runtime.host import Host, HostFailed
from divvy.agent.node_runtime.prepare import ROOT_FILE, prepare_containerd, prepare_crio

TABLE = '[plugins."io.containerd.cri.v1.runtime"]\n'
OFF = f"version = 3\n\n{TABLE}enable_cdi = false\n"
ON = f'{TABLE}enable_cdi = true\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n'


class FakeHost(Host):
    """A host in memory: files, a containerd that reads them, restarts that can fail."""

    def __init__(self, *, restarts: list[bool], reads: Callable[[dict[str, str]], str]) -> None:
        object.__setattr__(self, "files", {ROOT_FILE: OFF})
        object.__setattr__(self, "restarts", restarts)
        object.__setattr__(self, "reads", reads)
        object.__setattr__(self, "calls", [])

    def foreign(self) -> str | None:
        return "k3s" if "/k3s" in self.files else None

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, text: str | None) -> None:
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text

    def containerd_program(self) -> str:
        return "containerd"

    def run(self, *command: str) -> str:
        self.calls.append(command)
        if command[0] == "crio":
            return self.reads(self.files)
        if command[0] == "systemctl" and not self.restarts.pop(0):
            raise HostFailed("crio did not come back")
        if command[0] == "rm":
            for path in [path for path in self.files if path.startswith(command[-1])]:
                del self.files[path]
        return self.reads(self.files) if "dump" in command else ""

    def restart_containerd(self, deadline: float = 30.0) -> None:
        self.calls.append(("restart",))
        if not self.restarts.pop(0):
            raise HostFailed("containerd did not come back")


def obedient(files: dict[str, str]) -> str:
    """Read the files as containerd does: a drop-in switches CDI on, on trial or for good."""
    return ON if any(path.endswith("90-divvy.toml") for path in files) else OFF


def test_cdi_is_switched_on_and_said() -> None:
    host = FakeHost(restarts=[True], reads=obedient)
    assert prepare_containerd(host)[0] == "enable_cdi is off"
    assert DROP_IN in host.files
    assert "conf.d" in host.files[ROOT_FILE]


def test_a_second_run_does_nothing() -> None:
    host = FakeHost(restarts=[True], reads=obedient)
    prepare_containerd(host)
    before, host.calls[:] = dict(host.files), []
    assert prepare_containerd(host) == ()
    assert host.files == before
    assert ("restart",) not in host.calls


def test_a_containerd_that_does_not_come_back_gets_its_old_files() -> None:
    host = FakeHost(restarts=[False, True], reads=obedient)
    with pytest.raises(HostFailed, match="did not come back"):
        prepare_containerd(host)
    assert host.files == {ROOT_FILE: OFF}
    assert host.calls.count(("restart",)) == 2


def test_files_that_containerd_reads_otherwise_are_never_put_in_place() -> None:
    host = FakeHost(restarts=[], reads=lambda _: OFF)
    with pytest.raises(HostFailed, match="reads the new files otherwise"):
        prepare_containerd(host)
    assert host.files == {ROOT_FILE: OFF}


def test_a_distribution_with_a_layout_of_its_own_is_refused_by_name() -> None:
    host = FakeHost(restarts=[], reads=obedient)
    host.files["/k3s"] = ""
    with pytest.raises(CannotConfigure, match="k3s"):
        prepare_containerd(host)


def crio_reads(files: dict[str, str]) -> str:
    return files.get(crio.DROP_IN, "[crio.runtime]\nenable_cdi = false\n")


def test_crio_gets_a_drop_in_where_cdi_was_switched_off() -> None:
    host = FakeHost(restarts=[True], reads=crio_reads)
    assert prepare_crio(host, change=False) == ("enable_cdi is off",)
    assert crio.DROP_IN not in host.files
    assert prepare_crio(host) == ("enable_cdi is off",)
    assert host.files[crio.DROP_IN] == crio.drop_in()
    assert prepare_crio(host) == ()


def test_a_crio_that_does_not_come_back_loses_the_drop_in() -> None:
    host = FakeHost(restarts=[False, True], reads=crio_reads)
    with pytest.raises(HostFailed, match="did not come back"):
        prepare_crio(host)
    assert crio.DROP_IN not in host.files
    assert host.restarts == []

"""A node's supervisor, with ordinary programs, as an ordinary process."""

import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.node.supervisor import Component, Supervisor


class Ask:
    """Talks to a supervisor over its socket."""

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self.path))
            client.sendall(json.dumps(request).encode() + b"\n")
            return dict(json.loads(client.makefile().readline()))

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the status until it is as wanted."""
        deadline = time.monotonic() + 10
        while True:
            status = self(do="status")
            if condition(status):
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.02)


def _serve(directory: Path, listener: socket.socket) -> None:
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    late = directory / "late-may-start"
    components = [
        Component("steady", ["/bin/sleep", "1000"], log),
        Component("hasty", ["/bin/sh", "-c", "echo ran; exit 3"], log),
        Component("late", ["/bin/sleep", "1000"], log),
    ]
    ready: Callable[[str], bool] = lambda name: name != "late" or late.exists()  # noqa: E731
    supervisor = Supervisor(components, {"PATH": "/bin"}, listener, ready)
    supervisor.run()
    supervisor.stop()


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(8)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(tmp_path, listener))
        process.start()
    yield Ask(tmp_path / "s")
    process.terminate()
    process.join(10)
    assert process.exitcode == 0


def test_starts_nothing_until_told(ask: Ask) -> None:
    assert [process["pid"] for process in ask(do="status").values()] == [0, 0, 0]


def test_restarts_what_ends_and_reports_it(ask: Ask) -> None:
    ask(do="start", components=["steady"])
    first = ask.until(lambda status: status["steady"]["pid"] > 0)["steady"]["pid"]
    os.kill(first, signal.SIGKILL)
    again = ask.until(lambda status: status["steady"]["pid"] not in (0, first))["steady"]
    assert again["restarts"] == 1
    assert again["last end"] == "signal 9"


def test_backs_off_restarts_of_what_ends_at_once(ask: Ask, tmp_path: Path) -> None:
    ask(do="start", components=["hasty"])
    status = ask.until(lambda status: status["hasty"]["restarts"] >= 3)
    assert status["hasty"]["last end"] == "exit status 3"
    time.sleep(1.0)
    # After 0.2, 0.4, 0.8 s comes a pause of 1.6 s: without pauses it would be hundreds.
    assert len((tmp_path / "log").read_text().split()) <= 5


def test_replaces_the_process_on_a_restart(ask: Ask) -> None:
    ask(do="start", components=["steady"])
    first = ask.until(lambda status: status["steady"]["pid"] > 0)["steady"]["pid"]
    ask(do="restart", component="steady")
    ask.until(lambda status: status["steady"]["pid"] not in (0, first))


def test_starts_a_component_after_what_it_needs(ask: Ask, tmp_path: Path) -> None:
    ask(do="start", components=["late"])
    time.sleep(0.2)
    assert ask(do="status")["late"]["pid"] == 0
    (tmp_path / "late-may-start").touch()
    ask.until(lambda status: status["late"]["pid"] > 0)


def test_answers_and_survives_nonsense(ask: Ask) -> None:
    assert "error" in ask(do="dance")
    assert "error" in ask(do="restart", component="unknown")
    assert "error" in ask(say="nothing")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(ask.path))
    assert "steady" in ask(do="status")


def test_ends_its_components_with_itself(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(8)
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(tmp_path, listener)
        )
        process.start()
    ask = Ask(tmp_path / "s")
    ask(do="start", components=["steady"])
    pid = ask.until(lambda status: status["steady"]["pid"] > 0)["steady"]["pid"]
    process.terminate()
    process.join(10)
    assert process.exitcode == 0
    assert not Path(f"/proc/{pid}").exists()


def test_runs_the_new_command_of_a_replaced_component(ask: Ask) -> None:
    first = ask(do="start", components=["steady"])["steady"]["pid"]
    command = ["/bin/sleep", "2000"]
    ask(do="replace", commands={"steady": command}, path="/opt/new:/usr/bin:/bin")
    status = ask.until(lambda status: status["steady"]["pid"] not in (0, first))
    process = Path(f"/proc/{status['steady']['pid']}")
    # Between fork and exec it has the supervisor's command, and for a moment none.
    ask.until(lambda _: (process / "cmdline").read_text().split("\0")[:2] == command)
    # Where containerd looks for its shim.
    assert "PATH=/opt/new:/usr/bin:/bin" in (process / "environ").read_text().split("\0")

"""Keep a node's components running and tell about them over a Unix socket."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST_PAUSE = 5.0
_STEADY = 10.0


@dataclass
class Component:
    """One program of the node and how it fares."""

    name: str
    command: list[str]
    log: int
    wanted: bool = False
    pid: int = 0
    started: float = 0.0
    restarts: int = 0
    quick_ends: int = 0
    not_before: float = 0.0
    last_end: str = ""


class Supervisor:
    """Starts components on request, restarts them when they exit, reaps every orphan."""

    def __init__(
        self,
        components: Sequence[Component],
        environment: Mapping[str, str],
        listener: socket.socket,
        ready: Callable[[str], bool],
    ):
        """Supervise components; `ready` says whether what the named one waits for is there."""
        self._components = {component.name: component for component in components}
        self._environment = dict(environment)
        self._listener = listener
        self._ready = ready
        self._stopping = False

    def run(self) -> None:
        """Serve until asked to stop."""
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_writer, False)
        os.set_blocking(wake_reader, False)
        signal.set_wakeup_fd(wake_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        while not self._stopping:
            wait = self._start_due()
            readable, _, _ = select.select([self._listener.fileno(), wake_reader], [], [], wait)
            if wake_reader in readable and signal.SIGTERM in os.read(wake_reader, 4096):
                self._stopping = True
            self._reap()
            if self._listener.fileno() in readable:
                self._answer()

    def stop(self) -> None:
        """End the components, the last one first."""
        for component in reversed(self._components.values()):
            component.wanted = False
            self._end(component)

    def _start_due(self) -> float | None:
        """Start what is due; return after which time to look again."""
        now = time.monotonic()
        waits = []
        for component in self._components.values():
            if not component.wanted or component.pid:
                continue
            if component.not_before > now:
                waits.append(component.not_before - now)
            elif self._ready(component.name):
                self._start(component, now)
            else:
                waits.append(0.05)
        return min(waits, default=None)

    def _start(self, component: Component, now: float) -> None:
        actions = [
            (os.POSIX_SPAWN_DUP2, component.log, 1),
            (os.POSIX_SPAWN_DUP2, component.log, 2),
        ]
        component.pid = os.posix_spawn(
            component.command[0],
            component.command,
            self._environment,
            file_actions=actions,
            setsid=True,
            # Python ignores this one, and would pass that on.
            setsigdef=[signal.SIGPIPE],
        )
        component.started = now

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for component in self._components.values():
                if component.pid == pid:
                    self._ended(component, status)

    def _ended(self, component: Component, status: int) -> None:
        now = time.monotonic()
        component.pid = 0
        code = os.waitstatus_to_exitcode(status)
        component.last_end = f"exit status {code}" if code >= 0 else f"signal {-code}"
        if component.wanted:
            component.restarts += 1
        steady = now - component.started > _STEADY
        component.quick_ends = 0 if steady else component.quick_ends + 1
        component.not_before = now + min(0.1 * 2**component.quick_ends, _LONGEST_PAUSE)

    def _end(self, component: Component, patience: float = 10.0) -> None:
        pid = component.pid
        if not pid:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while component.pid == pid:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
            self._reap()

    def _restart(self, component: Component) -> None:
        component.not_before = 0.0
        self._end(component)
        component.quick_ends, component.not_before = 0, 0.0

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(5)
            try:
                request = json.loads(connection.makefile().readline())
                reply = self._obey(request)
            except (OSError, ValueError, KeyError) as error:
                reply = {"error": f"{type(error).__name__}: {error}"}
            try:
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except OSError:
                # Whoever asked has gone; the node does not depend on it.
                return

    def _obey(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                for name in request["components"]:
                    self._components[name].wanted = True
            case "restart":
                self._restart(self._components[request["component"]])
            case "replace":
                self._environment["PATH"] = request["path"]
                for name, command in request["commands"].items():
                    self._components[name].command = command
                    self._restart(self._components[name])
            case "status":
                pass
            case unknown:
                return {"error": f"a node does not know how to {unknown}"}
        return {
            name: {
                "wanted": c.wanted,
                "pid": c.pid,
                "restarts": c.restarts,
                "last end": c.last_end,
            }
            for name, c in self._components.items()
        }

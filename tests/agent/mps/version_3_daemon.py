"""A daemon of version 3 as its commands see it."""

from __future__ import annotations

from collections.abc import Sequence

from divvy.agent.mps.answers import NoAnswer, refusal

SERVER = "uid_0,0,48201,Ready,/p/uid_0,GPU-0,-"
# As NVIDIA's gpu-fractioning saw them on driver 615.
CLIENTS = """\
3167082,srv,GPU-cc97390c-c189-71f5-1bb7-5b0af481fa0d,srv/default (0),VLLM::EngineCore
3165259,srv,GPU-cc97390c-c189-71f5-1bb7-5b0af481fa0d,srv/default (0),python train.py, twice
"""


class Daemon:
    """A daemon as its commands see it: servers, namespaces with their limits, busy ones.

    A client is ``waiting`` for a namespace, and in it as soon as that is made; ``command_lines``
    are what clients write into their own. The next command that begins as ``late`` is obeyed, and
    answered too late; one that begins as ``later`` is obeyed after the next list of namespaces.
    """

    def __init__(self, *, starts: bool = True) -> None:
        self.starts = starts
        self.server = False
        self.namespaces: dict[str, list[str]] = {}
        self.busy: set[str] = set()
        self.waiting: dict[str, int] = {}
        self.clients: dict[int, str] = {}
        self.changes: list[str] = []
        self.command_lines: dict[int, str] = {}
        self.late = "-"
        self.later = "-"
        self._postponed: list[str] = []

    async def run(self, arguments: Sequence[str], text: str) -> str:
        assert (arguments[:2], text) == (("-p", "3"), "")
        words = [word for word in arguments[2:] if not word.startswith(("--server", "--format"))]
        if " ".join(words).startswith(self.later):
            self.later, self._postponed = "-", words
            raise NoAnswer("nothing within 5 s")
        answer = self._answer(words)
        if words == ["namespace", "list"] and self._postponed:
            self._answer(self._postponed)
            self._admit(self._postponed[2])
            self._postponed = []
        if words[1] not in ("list", "get"):
            self.changes.append(" ".join(words))
        if " ".join(words).startswith(self.late):
            self.late = "-"
            raise NoAnswer("nothing within 5 s")
        return answer

    def _answer(self, words: list[str]) -> str:
        match words:
            case ["server", "list"]:
                return SERVER if self.server else ""
            case ["server", "create", "uid_0", "--uid=0"]:
                self.server = self.starts
                self.namespaces = {}
                self._make("default")
            case ["namespace", "list"]:
                return "\n".join(
                    f"{name},uid_0,Ready,{memory},{threads},0,/p/uid_0/{name}"
                    for name, (memory, threads) in self.namespaces.items()
                )
            case ["namespace", "create", name]:
                self._make(name)
            case ["namespace", "set", name, memory, threads]:
                if name in self.busy or name in self.clients.values():
                    raise refusal("namespace set", "The namespace has active clients")
                values = [word.partition("=")[2] for word in (memory, threads)]
                self.namespaces[name] = [values[0], f"{values[1]}.00"]
            case ["namespace", "delete", name]:
                if name in self.busy:
                    raise refusal("namespace delete", "it has active clients")
                del self.namespaces[name]
            case ["client", "list"]:
                rows = (
                    f"{pid},uid_0,GPU-0,uid_0/{name} (0),{self.command_lines.get(pid, 'a')}"
                    for pid, name in self.clients.items()
                )
                return "\n".join((*rows, CLIENTS))
            case ["client", "get", pid, "maws-ns"]:
                if int(pid) not in self.clients:
                    raise refusal("client get", "there is no such client")
                return f"uid_0/{self.clients[int(pid)]} (0)"
            case ["client", "terminate", pid]:
                del self.clients[int(pid)]
            case _:
                raise AssertionError(words)
        return ""

    def _make(self, namespace: str) -> None:
        self.namespaces[namespace] = ["unlimited", "100.00"]
        self._admit(namespace)

    def _admit(self, namespace: str) -> None:
        if namespace in self.waiting:
            self.clients[self.waiting[namespace]] = namespace

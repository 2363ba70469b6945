"""The prompt of MPS' version 2: what a control daemon is told there, and what it answers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from divvy.agent.mps.answers import Refused, Run, pid, refusal
from divvy.agent.mps.supervision import Ceiling, Share

# Of a refusal the exit code need not tell.
_FAILURE = re.compile(r"\b(fail|invalid|error|unknown|unrecogni[sz]ed|denied|cannot|not )", re.I)


class Version2:
    """One daemon: its servers start with their first clients, and limit each alike."""

    OPTIONS = ("-multiuser-server",)
    has_namespaces = False
    lacks_server = False

    def __init__(self, run: Run) -> None:
        self._run = run

    async def servers(self) -> frozenset[int]:
        """Return the PIDs of its servers; raises NoAnswer."""
        answer = await self._say("get_server_list")
        return frozenset(pid(word, answer) for word in answer.split())

    async def has_clients(self, server: int) -> bool:
        """Return whether a server lists a client; raises NoAnswer."""
        return bool((await self._say(f"get_client_list {server}")).split())

    async def limit(self, ceiling: Ceiling) -> None:
        """Tell it what clients may use at most, and servers that run: the default is the next's.

        Raises NoAnswer, Refused where it does not take a limit.
        """
        if ceiling.memory_mib is None:
            return
        memory, threads = f"{ceiling.memory_mib}M", ceiling.threads
        await self._set(f"set_default_device_pinned_mem_limit 0 {memory}")
        await self._set(f"set_default_active_thread_percentage {threads}")
        # After that: a server that starts meanwhile has the new default.
        for server in await self.servers():
            try:
                await self._set(f"set_device_pinned_mem_limit {server} 0 {memory}")
                await self._set(f"set_active_thread_percentage {server} {threads}")
            except Refused:
                if server in await self.servers():  # else it has ended meanwhile
                    raise

    def may_end_servers(self, *, alone: bool) -> bool:
        """Return whether servers without clients can be ended: the next client starts another."""
        return True

    async def prepare(self, share: Share, ceiling: Ceiling) -> None:
        """Do nothing for a container: it brings its limits in its environment."""

    async def tidy(self, ceiling: Ceiling) -> None:
        """Do nothing: a container leaves nothing behind."""

    async def terminate(self, servers: Iterable[int], client: int) -> None:
        """End what a client has on the GPU; raises NoAnswer."""
        for server in sorted(servers):
            with contextlib.suppress(Refused):  # it is another server's, or has ended meanwhile
                await self._say(f"terminate_client {server} {client}")

    async def quit(self, servers: Iterable[int]) -> None:
        """Have it terminate its clients and end; raises NoAnswer."""
        commands = []
        for server in sorted(servers):
            clients = await self._say(f"get_client_list {server}")
            numbers = filter(str.isdecimal, clients.split())
            commands += [f"terminate_client {server} {number}" for number in numbers]
        await self._say("\n".join([*commands, "quit -t 0"]))

    async def _set(self, command: str) -> None:
        answer = await self._say(command)
        if _FAILURE.search(answer):
            raise refusal(command.split()[0], answer)

    async def _say(self, commands: str) -> str:
        return await self._run((), f"{commands}\n")

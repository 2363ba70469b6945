"""The prompt of MPS' version 2: what a control daemon is told there, and what it answers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable

from divvy.agent.mps.answers import Refused, Run, pid, refusal
from divvy.agent.mps.supervision import Ceiling, Share

_LOOKS_AT_START, _LOOK_SECONDS = 20, 0.1
# Of a refusal the exit code need not tell.
_FAILURE = re.compile(r"\b(fail|invalid|error|unknown|unrecogni[sz]ed|denied|cannot|not )", re.I)


class Version2:
    """One daemon, whose server limits each client alike.

    A server would start with its first client. Until then a program that does not look for the
    daemon would get the GPU, all of it and alone: so it is started before.
    """

    OPTIONS = ("-multiuser-server",)
    has_namespaces = False

    def __init__(self, run: Run) -> None:
        self._run = run
        self.lacks_server = True
        self._used = True  # of a server that an agent before started nothing is known

    async def servers(self) -> frozenset[int]:
        """Return the PIDs of its servers; raises NoAnswer."""
        answer = await self._say("get_server_list")
        servers = frozenset(pid(word, answer) for word in answer.split())
        self.lacks_server = not servers
        return servers

    async def has_clients(self, server: int) -> bool:
        """Return whether a server lists a client; raises NoAnswer."""
        return bool((await self._say(f"get_client_list {server}")).split())

    async def limit(self, ceiling: Ceiling) -> None:
        """Tell it what clients may use at most, and servers that run: the default is the next's.

        Raises NoAnswer, Refused if it does not take a limit or its server does not start.
        """
        if ceiling.memory_mib is not None:
            await self._set(f"set_default_device_pinned_mem_limit 0 {ceiling.memory_mib}M")
            await self._set(f"set_default_active_thread_percentage {ceiling.threads}")
        # After that: a server that starts meanwhile has the new default.
        running = await self.servers()
        if not running:
            await self._start()
        if ceiling.memory_mib is not None:
            for server in running:
                await self._limit_server(server, ceiling)

    async def _limit_server(self, server: int, ceiling: Ceiling) -> None:
        try:
            await self._set(f"set_device_pinned_mem_limit {server} 0 {ceiling.memory_mib}M")
            await self._set(f"set_active_thread_percentage {server} {ceiling.threads}")
        except Refused:
            if server in await self.servers():  # else it has ended meanwhile
                raise

    async def _start(self) -> None:
        await self._set("start_server -uid 0")
        for _ in range(_LOOKS_AT_START):
            if await self.servers():
                self._used = False
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise Refused("start_server: the server has not started")

    def may_end_servers(self, *, alone: bool) -> bool:
        """Return whether servers without clients can be ended: a new one cannot be harmed yet."""
        return self._used

    async def prepare(self, share: Share, ceiling: Ceiling) -> None:
        """See to the server; a container brings its limits in its environment.

        Raises NoAnswer, Refused.
        """
        await self.limit(ceiling)
        self._used = True

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

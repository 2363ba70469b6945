"""The commands of MPS' version 3: one server, and a namespace for each container's share.

Sources: docs.nvidia.com/deploy/mps, "MPS v3 Interface" and "MPS v3 Namespaces" (release 615). Of
NVIDIA's gpu-fractioning, run on driver 615: tables cut PIDs of seven digits, `csv` does not; limits
of a namespace cannot be set while it has clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from divvy.agent.mps.answers import NoAnswer, Refused, Run, pid
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.model.sharing import ALL_COMPUTE

PROTOCOL = ("-p", "3")
# Also the server of clients that come to the daemon's own socket, as those of version 2 do.
SERVER = "uid_0"
DEFAULT = "default"
_CSV = "--format=csv,noheader"
_IN_SERVER = f"--server={SERVER}"
_UNITS = {"K": -10, "M": 0, "G": 10}
_UNLIMITED = 0
_UNREADABLE = -1
_MAX_DIGITS = 18
_CLIENT_COLUMNS = 2


class Version3:
    """One daemon, with the namespaces of shares that are held.

    ``given`` are the limits that containers were started with, by namespace; it outlives a daemon.
    """

    OPTIONS = ("-m", *PROTOCOL)
    has_namespaces = True

    def __init__(self, run: Run, given: dict[str, Share]) -> None:
        self._run = run
        self._given = given
        self.lacks_server = True
        self._used = True  # of a server that an agent before started nothing is known
        self._unclaimed: frozenset[str] = frozenset()

    async def servers(self) -> frozenset[int]:
        """Return the PIDs of its servers; raises NoAnswer."""
        return frozenset((await self._servers()).values())

    async def _servers(self) -> Mapping[str, int]:
        pids = parse_servers(await self._command("server", "list", _CSV))
        self.lacks_server = SERVER not in pids
        return pids

    async def has_clients(self, server: int) -> bool:
        """Return whether it lists a client; raises NoAnswer."""
        return bool(await self._clients())

    async def limit(self, ceiling: Ceiling) -> None:
        """See to its server, with the namespaces of shares that are held.

        Those keep the limits that their containers were started with, whatever a share has now: a
        profile may have changed, or an init container's replicas are a later container's. Raises
        NoAnswer, Refused if the server does not start or takes no limit.
        """
        if SERVER not in await self._servers():
            await self._command("server", "create", SERVER, "--uid=0")
            if SERVER not in await self._servers():
                # NVIDIA has seen that one which cannot start is accepted (Dynamo's guide).
                raise Refused("server create: the server has not started")
            self._used = False
        listed = await self._namespaces()
        shares = [self._given.get(share.name, share) for share in ceiling.shares or ()]
        if ceiling.memory_mib is not None and ceiling.threads is not None:
            shares.insert(0, Share(DEFAULT, ceiling.memory_mib, ceiling.threads))
        refusals = []
        for share in shares:
            try:
                await self._limit_share(share, listed.get(share.name))
            except Refused as refusal:  # not at the expense of others
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    async def _limit_share(self, share: Share, current: Share | None) -> None:
        """See to one share's namespace, whose limits are the current ones, None if it is absent.

        The server's own has what its profile has now, as soon as it has no clients. Raises
        NoAnswer, Refused.
        """
        if current is None and share.name != DEFAULT:
            await self._create(share)
        elif _is_bare(current):
            await self._limit_bare(share)
        elif share.name == DEFAULT and current != share:
            with contextlib.suppress(Refused):
                await self._set(share)

    def may_end_servers(self, *, alone: bool) -> bool:
        """Return whether the server can be ended if it has no clients.

        With it end all namespaces, and a container keeps the folder of the one that it was started
        with: not beside another container, nor where no client can have harmed the server yet.
        """
        return self._used and alone

    async def prepare(self, share: Share, ceiling: Ceiling) -> None:
        """Make the namespace of a container that starts now; raises NoAnswer, Refused."""
        await self.limit(ceiling)
        listed = await self._namespaces()
        if share.name not in listed:
            await self._create(share)
            if share.name not in await self._namespaces():
                raise Refused(f"namespace create: there is no {share.name}")
        elif listed[share.name] != share:
            await self._set(share)
        self._given[share.name] = share
        self._used = True
        self._unclaimed -= {share.name}

    async def tidy(self, ceiling: Ceiling) -> None:
        """Delete namespaces that no share claims, now and the last time; raises NoAnswer.

        Their limits are forgotten, also of one that has ended with its server.
        """
        if self.lacks_server or ceiling.shares is None:
            return
        claimed = {DEFAULT, *(share.name for share in ceiling.shares)}
        listed = await self._namespaces()
        unclaimed = frozenset(listed).union(self._given) - claimed
        for name in sorted(unclaimed & self._unclaimed):
            with contextlib.suppress(Refused):  # it has a client still
                if name in listed:
                    await self._command("namespace", "delete", name, _IN_SERVER)
                self._given.pop(name, None)
        self._unclaimed = unclaimed

    async def terminate(self, servers: Iterable[int], client: int) -> None:
        """End what a client has on the GPU; raises NoAnswer."""
        with contextlib.suppress(Refused):  # it has ended meanwhile
            await self._command("client", "terminate", str(client))

    async def quit(self, servers: Iterable[int]) -> None:
        """Have it terminate its clients and end; raises NoAnswer."""
        for client in sorted(await self._clients()):
            await self.terminate(servers, client)
        await self._command("-q")

    async def _clients(self) -> frozenset[int]:
        return parse_clients(await self._command("client", "list", _CSV))

    async def _namespaces(self) -> Mapping[str, Share]:
        listed = parse_namespaces(await self._command("namespace", "list", _IN_SERVER, _CSV))
        for name, share in listed.items():
            if share.memory_mib > _UNLIMITED:  # an earlier agent has set its limits
                self._given.setdefault(name, share)
        return listed

    async def _create(self, share: Share) -> None:
        await self._command("namespace", "create", share.name, _IN_SERVER)
        await self._limit_bare(share)

    async def _limit_bare(self, share: Share) -> None:
        """Limit a namespace that has no limit of memory; raises NoAnswer, Refused.

        A client that came before would have none for as long as it lives: it is ended. A limit
        that is there meanwhile is one whose command was answered too late: its clients have it.
        """
        try:
            await self._set(share)
        except Refused:
            if not _is_bare((await self._namespaces()).get(share.name)):
                return
            listed = await self._command("client", "list", _CSV)
            for client in sorted(clients_in(share.name, listed)):
                if await self._is_in(share.name, client):
                    await self.terminate((), client)
            await self._set(share)

    async def _is_in(self, namespace: str, client: int) -> bool:
        """Return whether a client is in a namespace: server and name, uid_0/share_0 (0).

        Raises NoAnswer.
        """
        try:
            answer = await self._command("client", "get", str(client), "maws-ns")
        except Refused:  # it has ended meanwhile, or there never was one
            return False
        return answer.split()[:1] == [f"{SERVER}/{namespace}"]

    async def _set(self, share: Share) -> None:
        await self._command(
            *("namespace", "set", share.name, _IN_SERVER),
            f"--pinned-memory-limit={share.memory_mib}M",
            f"--active-thread-percentage={share.threads}",
        )

    async def _command(self, *words: str) -> str:
        return await self._run((*PROTOCOL, *words), "")


def parse_servers(answer: str) -> dict[str, int]:
    """Return server → PID of `server list`: name, uid, pid, status, …; raises NoAnswer."""
    return {fields[0]: pid(fields[2], answer) for fields in _rows(answer, 4)}


def parse_clients(answer: str) -> frozenset[int]:
    """Return the PIDs of `client list`, which are first in each line; raises NoAnswer."""
    return frozenset(client for client, _ in _client_rows(answer))


def clients_in(namespace: str, answer: str) -> frozenset[int]:
    """Return the PIDs that `client list` names in one namespace of the server; raises NoAnswer.

    The fourth column names server and namespace: uid_0/share_0 (0). These may be more than its
    clients: a command may have lines like those of others.
    """
    column = f"{SERVER}/{namespace}"
    return frozenset(
        client
        for client, fields in _client_rows(answer)
        if "".join(fields[3:4]).split()[:1] == [column]
    )


def _client_rows(answer: str) -> Iterable[tuple[int, list[str]]]:
    """Yield PID and columns of each client; the last is its command, which may have many lines."""
    is_first = True
    for line in filter(None, map(str.strip, answer.splitlines())):
        fields = line.split(",")
        try:
            client = pid(fields[0] if len(fields) >= _CLIENT_COLUMNS else "", line)
        except NoAnswer:
            if is_first:
                raise
        else:
            yield client, fields
        is_first = False


def parse_namespaces(answer: str) -> dict[str, Share]:
    """Return the namespaces of `namespace list` with their limits; raises NoAnswer.

    Their columns: name, server, status, memory, per cent of the threads, …
    """
    return {
        fields[0]: Share(fields[0], _mib(fields[3]), _per_cent(fields[4]))
        for fields in _rows(answer, 5)
    }


def _is_bare(namespace: Share | None) -> bool:
    """Return whether an agent stopped before it set a limit, killed or without an answer."""
    return namespace is None or namespace.memory_mib == _UNLIMITED


def _rows(answer: str, columns: int) -> Iterable[list[str]]:
    for line in filter(None, map(str.strip, answer.splitlines())):
        fields = line.split(",")
        if len(fields) < columns:
            raise NoAnswer(line)
        yield fields


def _mib(field: str) -> int:
    if field == "unlimited":
        return _UNLIMITED
    number, unit = field[:-1], _UNITS.get(field[-1:])
    if unit is None or not number.isdecimal() or len(number) > _MAX_DIGITS:
        return _UNREADABLE
    return int(number) << unit if unit >= 0 else int(number) >> -unit


def _per_cent(field: str) -> int:
    try:
        return int(float(field))
    except (ValueError, OverflowError):  # also of an infinite number
        return ALL_COMPUTE

"""What a daemon of version 3 is told of servers and namespaces, and what its answers mean."""

from __future__ import annotations

import pytest

from divvy.agent.mps.answers import NoAnswer, Refused
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.agent.mps.version_3 import (
    Version3,
    clients_in,
    parse_clients,
    parse_namespaces,
    parse_servers,
)
from tests.agent.mps.version_3_daemon import CLIENTS, SERVER, Daemon

FIRST, SECOND = Share("share_0", 10240, 25), Share("share_3", 20480, 50)
WHOLE = Ceiling(40960, 100)
ENDLESS = "9" * 5000  # more digits than Python takes for a number
# As NVIDIA's gpu-fractioning saw them on driver 615, of the same two clients.
TABLE = """\
PID     SERVER        DEVICE                                         MAWS NS          CMD
316...  srv           GPU-cc97390c-c189-71f5-1bb7-5b0af481fa0d       srv/default (0)  VLLM::Engine
"""


def test_reads_what_lists_say() -> None:
    assert parse_servers(f"{SERVER}\ntraining,1000,48202,Ready,/p/t,GPU-1,GPU-2,-\n") == {
        "uid_0": 48201,
        "training": 48202,
    }
    assert parse_servers("") == {}
    assert parse_clients(CLIENTS) == {3165259, 3167082}
    assert parse_namespaces(
        "default,s,Ready,unlimited,100.00\nsmall,s,Ready,900M,30.00,0,/p/s/small\n"
        "large,s,Ready,5G,25.00,0,/p\ntiny,s,Ready,1048576K,25.00,0,/p\n"
    ) == {
        "default": Share("default", 0, 100),
        "small": Share("small", 900, 30),
        "large": Share("large", 5120, 25),
        "tiny": Share("tiny", 1024, 25),
    }


def test_reads_clients_whose_command_has_several_lines() -> None:
    """As of `python -c`: the daemon could not be asked to end its clients before it ends."""
    row = "4711,uid_0,GPU-0,uid_0/share_0 (0),python -c import torch"
    rest = "for step in range(9):\n\n  print(step, 'a', 'b', 'c')\n  ...\n99999999,9"
    answer = f"{row}\n{rest}\n{CLIENTS}"
    assert parse_clients(answer) == {4711, 3165259, 3167082}
    assert clients_in("share_0", answer) == {4711}


@pytest.mark.parametrize("answer", [TABLE, "316...,srv", "none", "-1,srv", f"{ENDLESS},srv"])
def test_takes_no_cut_pid_for_an_answer(answer: str) -> None:
    with pytest.raises(NoAnswer):
        parse_clients(answer)


@pytest.mark.parametrize(
    "answer", ["uid_0,0,,Ready", "NAME UID PID", "uid_0,0", f"uid_0,0,{ENDLESS},Ready"]
)
def test_takes_nothing_else_for_a_list_of_servers(answer: str) -> None:
    with pytest.raises(NoAnswer):
        parse_servers(answer)


@pytest.mark.parametrize("limit", [f"{ENDLESS}G", "-", ""])
@pytest.mark.parametrize("threads", ["inf", "-inf", "nan", "1e999", ENDLESS, "-", ""])
def test_takes_a_limit_that_it_cannot_read_neither_for_none_nor_for_a_size(
    limit: str, threads: str
) -> None:
    answer = f"share_0,s,Ready,{limit},{threads}"
    assert parse_namespaces(answer) == {"share_0": Share("share_0", -1, 100)}


async def test_starts_its_server_with_namespaces_of_shares_that_are_held() -> None:
    daemon = Daemon()
    version = Version3(daemon.run, {})
    assert await version.servers() == frozenset()
    assert version.lacks_server
    await version.limit(Ceiling(40960, 100, (FIRST, SECOND)))
    assert not version.lacks_server
    assert daemon.namespaces == {
        "default": ["40960M", "100.00"],
        "share_0": ["10240M", "25.00"],
        "share_3": ["20480M", "50.00"],
    }
    daemon.changes.clear()
    await version.limit(Ceiling(40960, 100, (FIRST, SECOND)))
    assert daemon.changes == []
    daemon.server = False
    await version.servers()
    assert version.lacks_server


async def test_refuses_limits_if_its_server_does_not_start() -> None:
    with pytest.raises(Refused, match="the server has not started"):
        await Version3(Daemon(starts=False).run, {}).limit(WHOLE)


async def test_keeps_the_limits_of_namespaces_that_have_clients() -> None:
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["10G", "25.00"], "share_0": ["5G", "10.00"]}
    daemon.busy = {"default", "share_0"}
    version = Version3(daemon.run, {})
    await version.limit(Ceiling(40960, 100, (FIRST,)))
    assert daemon.namespaces["share_0"] == ["5G", "10.00"]
    with pytest.raises(Refused, match="active clients"):
        await version.prepare(FIRST, WHOLE)
    daemon.busy.clear()
    await version.prepare(FIRST, WHOLE)
    assert daemon.namespaces["share_0"] == ["10240M", "25.00"]


async def test_limits_a_namespace_that_was_left_without_limits() -> None:
    """An agent can be killed after it has made one."""
    daemon = Daemon()
    version = Version3(daemon.run, {})
    await version.limit(WHOLE)
    daemon.namespaces["share_0"] = ["unlimited", "100.00"]
    await version.limit(Ceiling(40960, 100, (FIRST,)))
    assert daemon.namespaces["share_0"] == ["10240M", "25.00"]


async def test_leaves_no_client_without_limits_that_comes_before_they_are_set() -> None:
    """After a server's end a program that tries all the time is faster than the next command."""
    daemon = Daemon()
    daemon.waiting = {FIRST.name: 4711}
    daemon.clients = {12: "default"}
    await Version3(daemon.run, {}).limit(Ceiling(None, None, (FIRST, SECOND)))
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]
    assert daemon.clients == {12: "default"}


async def test_leaves_no_client_without_limits_when_the_agent_is_killed_before_they_are_set() -> (
    None
):
    """The agent after it finds the namespace, with a client."""
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["40G", "100.00"], FIRST.name: ["unlimited", "100.00"]}
    daemon.clients = {12: "default", 4711: FIRST.name}
    await Version3(daemon.run, {}).limit(Ceiling(40960, 100, (FIRST,)))
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]
    assert daemon.clients == {12: "default"}


async def test_leaves_no_client_of_the_servers_own_namespace_without_limits() -> None:
    """A container of version 2, or one without its variable, comes to it."""
    daemon = Daemon()
    daemon.waiting = {"default": 4711}
    await Version3(daemon.run, {}).limit(WHOLE)
    assert daemon.namespaces["default"] == ["40960M", "100.00"]
    assert daemon.clients == {}


async def test_leaves_no_client_of_a_server_that_an_agent_before_made_without_limits() -> None:
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["unlimited", "100.00"]}
    daemon.clients = {4711: "default"}
    await Version3(daemon.run, {}).limit(WHOLE)
    assert daemon.namespaces["default"] == ["40960M", "100.00"]
    assert daemon.clients == {}


async def test_ends_the_client_without_limits_and_no_neighbour_whatever_its_command_says() -> None:
    """A program writes what it likes into its command, also lines like those of clients."""
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["40G", "100.00"], FIRST.name: ["unlimited", "100.00"]}
    daemon.clients = {4711: FIRST.name, 12: SECOND.name}
    daemon.command_lines = {
        4711: "\n".join(
            f"{pid},uid_0,GPU-0,uid_0/{name} (0),a"
            for pid, name in ((4711, "other"), (12, FIRST.name), (13, FIRST.name))
        )
    }
    await Version3(daemon.run, {}).limit(Ceiling(40960, 100, (FIRST,)))
    assert daemon.clients == {12: SECOND.name}
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]


async def test_ends_no_client_of_limits_that_are_set_after_their_namespace_was_listed() -> None:
    """On a busy node the daemon obeys after its answer is no longer waited for."""
    daemon = Daemon()
    version = Version3(daemon.run, {})
    daemon.later = f"namespace set {FIRST.name}"
    held = Ceiling(None, None, (FIRST,))
    with pytest.raises(NoAnswer):
        await version.limit(held)
    daemon.waiting = {FIRST.name: 4711}
    await version.limit(held)
    assert daemon.clients == {4711: FIRST.name}
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]


async def test_ends_no_client_whose_limit_of_memory_is_written_in_an_unknown_way() -> None:
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["40G", "100.00"], FIRST.name: ["10.5T", "25.00"]}
    daemon.clients = {4711: FIRST.name}
    given: dict[str, Share] = {}
    await Version3(daemon.run, given).limit(Ceiling(40960, 100, (FIRST,)))
    assert daemon.clients == {4711: FIRST.name}
    assert FIRST.name not in given


async def test_limits_a_namespace_whose_making_was_answered_too_late() -> None:
    """On a busy node the daemon makes it after its answer is no longer waited for."""
    daemon = Daemon()
    version = Version3(daemon.run, {})
    daemon.late = "namespace create"
    daemon.waiting = {FIRST.name: 4711}
    held = Ceiling(None, None, (FIRST,))
    with pytest.raises(NoAnswer):
        await version.limit(held)
    await version.limit(held)
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]
    assert daemon.clients == {}


async def test_ends_no_client_of_a_namespace_whose_limits_were_answered_too_late() -> None:
    daemon = Daemon()
    version = Version3(daemon.run, {})
    daemon.late = f"namespace set {FIRST.name}"
    held = Ceiling(None, None, (FIRST,))
    with pytest.raises(NoAnswer):
        await version.limit(held)
    daemon.clients = {4711: FIRST.name}
    await version.limit(held)
    assert daemon.clients == {4711: FIRST.name}


async def test_is_not_ready_while_a_client_stays_without_limits() -> None:
    daemon = Daemon()
    version = Version3(daemon.run, {})
    daemon.busy = {FIRST.name}
    for _ in range(2):
        with pytest.raises(Refused, match="active clients"):
            await version.limit(Ceiling(None, None, (FIRST,)))
    daemon.busy.clear()
    await version.limit(Ceiling(None, None, (FIRST,)))
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]


@pytest.mark.parametrize("busy", ["default", FIRST.name])
async def test_makes_all_namespaces_again_although_a_client_stays_in_one_without_limits(
    busy: str,
) -> None:
    """A program that comes back faster than it is ended keeps no neighbour from its own."""
    daemon = Daemon()
    version = Version3(daemon.run, {})
    daemon.busy = {busy}
    with pytest.raises(Refused, match="active clients"):
        await version.limit(Ceiling(40960, 100, (FIRST, SECOND)))
    assert daemon.namespaces[SECOND.name] == ["20480M", "50.00"]


async def test_keeps_the_limits_that_a_container_was_started_with() -> None:
    """Also where its profile goes, or changes, while it runs: nothing has limits for it then."""
    daemon = Daemon()
    version = Version3(daemon.run, {})
    await version.prepare(FIRST, WHOLE)
    changed = Ceiling(40960, 100, (Share(FIRST.name, 40960, 100),))
    limits = ["10240M", "25.00"]
    await version.limit(changed)
    assert daemon.namespaces["share_0"] == limits
    daemon.server = False
    await version.limit(changed)
    assert daemon.namespaces["share_0"] == limits
    after_restart = Version3(daemon.run, {})
    await after_restart.limit(changed)
    daemon.server = False
    await after_restart.limit(changed)
    assert daemon.namespaces["share_0"] == limits


async def test_makes_no_namespace_with_a_limit_that_it_could_not_read() -> None:
    """As of one whose limit of memory root in a container has lifted."""
    daemon = Daemon()
    daemon.server = True
    daemon.namespaces = {"default": ["40G", "100.00"], FIRST.name: ["unlimited", "50.00"]}
    version = Version3(daemon.run, {})
    held = Ceiling(40960, 100, (FIRST,))
    await version.limit(held)
    daemon.server = False
    await version.limit(held)
    assert daemon.namespaces[FIRST.name] == ["10240M", "25.00"]


async def test_ends_its_server_neither_beside_another_container_nor_before_its_first() -> None:
    version = Version3(Daemon().run, {})
    assert version.may_end_servers(alone=True)  # one that an agent before has started
    await version.limit(WHOLE)
    assert not version.may_end_servers(alone=True)
    await version.prepare(FIRST, WHOLE)
    assert version.may_end_servers(alone=True)
    assert not version.may_end_servers(alone=False)


async def test_deletes_namespaces_unclaimed_twice() -> None:
    daemon = Daemon()
    version = Version3(daemon.run, {})
    held = Ceiling(40960, 100, (SECOND,))
    for share in (FIRST, SECOND):
        await version.prepare(share, WHOLE)
    await version.tidy(held)
    assert set(daemon.namespaces) == {"default", "share_0", "share_3"}
    await version.prepare(FIRST, held)  # of another container, which is not listed yet
    await version.tidy(held)
    assert "share_0" in daemon.namespaces
    daemon.busy = {"share_0"}
    await version.tidy(held)
    assert "share_0" in daemon.namespaces
    daemon.busy.clear()
    await version.tidy(held)
    assert set(daemon.namespaces) == {"default", "share_3"}


async def test_forgets_limits_of_namespaces_that_ended_with_a_server() -> None:
    """They are kept on the disk; and root in a container can make, and delete, any of any name."""
    daemon = Daemon()
    given: dict[str, Share] = {}
    version = Version3(daemon.run, given)
    held = Ceiling(40960, 100, (SECOND,))
    for share in (FIRST, SECOND):
        await version.prepare(share, WHOLE)
    daemon.namespaces["of_a_tenant"] = ["1G", "1.00"]
    await version.tidy(held)
    daemon.server = False
    await version.limit(held)
    await version.prepare(FIRST, held)  # of another container, which is not listed yet
    await version.tidy(held)
    assert set(given) == {"default", "share_0", "share_3"}
    daemon.server = False
    for _ in range(2):
        await version.limit(held)
        await version.tidy(held)
    assert set(given) == {"default", "share_3"}


async def test_deletes_no_namespace_while_the_holders_are_unknown() -> None:
    daemon = Daemon()
    version = Version3(daemon.run, {})
    await version.prepare(FIRST, WHOLE)
    unknown = Ceiling(40960, 100, None)
    await version.limit(unknown)
    for _ in range(3):
        await version.tidy(unknown)
    assert "share_0" in daemon.namespaces

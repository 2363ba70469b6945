"""What a daemon of version 2 is told, and when its server starts."""

from __future__ import annotations

from collections.abc import Sequence

from divvy.agent.mps.supervision import Ceiling, Share
from divvy.agent.mps.version_2 import Version2

SERVER = "48201"
WITHOUT_PROFILE = Ceiling(None, None)


class Daemon:
    """A daemon as its prompt sees it: the server, and what it was told besides questions."""

    def __init__(self) -> None:
        self.server = False
        self.changes: list[str] = []

    async def run(self, arguments: Sequence[str], text: str) -> str:
        assert arguments == ()
        command = text.strip()
        if command == "get_server_list":
            return SERVER if self.server else ""
        self.changes.append(command)
        self.server |= command.startswith("start_server")
        return ""


async def test_starts_its_server_after_the_default_limits_are_set() -> None:
    daemon = Daemon()
    version = Version2(daemon.run)
    await version.limit(Ceiling(10240, 25))
    assert daemon.changes == [
        "set_default_device_pinned_mem_limit 0 10240M",
        "set_default_active_thread_percentage 25",
        "start_server -uid 0",
    ]
    assert not version.lacks_server


async def test_starts_its_server_for_clients_whose_profile_has_gone() -> None:
    """Without one the GPU would be free for a program beside it, and the daemon never ready."""
    daemon = Daemon()
    version = Version2(daemon.run)
    await version.limit(WITHOUT_PROFILE)
    assert daemon.changes == ["start_server -uid 0"]
    await version.servers()
    assert not version.lacks_server
    daemon.server = False
    await version.prepare(Share("share_0", 40960, 100), WITHOUT_PROFILE)
    assert daemon.server

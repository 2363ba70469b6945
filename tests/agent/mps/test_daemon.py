"""What a control daemon answers, and where its sockets lie."""

from __future__ import annotations

import uuid
from pathlib import Path
from time import monotonic

import pytest

from divvy.agent.mps.answers import NoAnswer, refusal
from divvy.agent.mps.daemon import PROGRAM, MpsDaemon
from divvy.model.contract import STATE_FOLDER
from divvy.model.profile import MAX_MPS_CLIENTS
from tests.fakes.scene import play

SERVER, CLIENT = 3165259, 4194303
OTHER_SERVER = 11  # whose client it is not
# Of sockaddr_un, with the byte that ends it.
LONGEST_ADDRESS = 108
SOCKETS = (
    *("control", "control_privileged", "nvidia-cuda-mps-control.pid"),
    *("uid_0/control", "uid_0/default/control", f"uid_0/share_{MAX_MPS_CLIENTS - 1}/control"),
)


def daemon(folder: Path, servers: str = str(SERVER)) -> MpsDaemon:
    """Return a daemon whose prompt answers with long PIDs and keeps what it is told."""
    program = folder / PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
        while read -r line; do
            echo "$line" >> {folder}/told
            case "$line" in
            get_server_list) echo "{servers}" ;;
            get_client_list*) echo {CLIENT} ;;
            "terminate_client {OTHER_SERVER} "*) exit 1 ;;
            esac
        done
        """
    )
    program.chmod(0o755)
    return MpsDaemon(folder, folder / "GPU-0", folder / "shm", "GPU-0", lambda: None)


def test_reads_pids_of_seven_digits(tmp_path: Path) -> None:
    async def scene() -> None:
        asked = daemon(tmp_path)
        await asked.quit()
        assert asked.servers == {SERVER}
        assert (tmp_path / "told").read_text().splitlines() == [
            "get_server_list",
            f"get_client_list {SERVER}",
            f"terminate_client {SERVER} {CLIENT}",
            "quit -t 0",
        ]

    play(scene)


def test_waits_for_clients_that_do_not_end_no_longer_than_a_pod_has(tmp_path: Path) -> None:
    async def scene() -> None:
        asked = daemon(tmp_path)
        program = tmp_path / PROGRAM
        program.write_text(program.read_text().replace("*) echo", "*) exec sleep 60; echo"))
        began = monotonic()
        with pytest.raises(NoAnswer, match="not ended within 2 s"):
            await asked.quit()
        assert monotonic() - began < 4

    play(scene)


def test_terminates_a_client_of_whichever_server_has_it(tmp_path: Path) -> None:
    async def scene() -> None:
        asked = daemon(tmp_path, f"{OTHER_SERVER}\n{SERVER}")
        await asked.ask()
        await asked.terminate(CLIENT)
        assert (tmp_path / "told").read_text().splitlines() == [
            "get_server_list",
            f"terminate_client {OTHER_SERVER} {CLIENT}",
            f"terminate_client {SERVER} {CLIENT}",
        ]

    play(scene)


@pytest.mark.parametrize("servers", ["316...", "PID  SERVER", "-1", "9" * 5000])
def test_takes_no_cut_pid_for_an_answer(tmp_path: Path, servers: str) -> None:
    async def scene() -> None:
        with pytest.raises(NoAnswer):
            await daemon(tmp_path, servers).ask()

    play(scene)


def test_quotes_a_long_refusal_by_its_beginning() -> None:
    """It goes into the node's status, of which an API server takes 256 KiB."""
    words = str(refusal("namespace set", "Usage:\n" + "an option\n" * 100_000))
    assert words.startswith("namespace set: Usage: an option an option")
    assert len(words) < 400


def test_keeps_paths_of_sockets_within_an_address() -> None:
    folder = Path(STATE_FOLDER) / "mps" / f"GPU-{uuid.UUID(int=0)}"
    pipes = MpsDaemon(Path("/"), folder, Path("/"), folder.name, lambda: None).pipes
    assert max(len(str(pipes / name)) for name in SOCKETS) < LONGEST_ADDRESS


def test_quotes_what_a_daemon_said_last_and_not_its_greeting(tmp_path: Path) -> None:
    logs = tmp_path / "GPU-0/log"
    logs.mkdir(parents=True)
    (logs / "start.log").write_text("To connect CUDA applications to this daemon, set A=/b\n")
    asked = daemon(tmp_path)
    assert asked.last_words() == "it says nothing"
    (logs / "control.log").write_text("Server 7 died\n")
    assert asked.last_words() == "Server 7 died"

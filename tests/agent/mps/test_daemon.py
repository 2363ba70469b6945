"""What a control daemon answers, and where its sockets lie."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

import pytest

from divvy.agent.mps import daemon as daemon_module
from divvy.agent.mps.answers import NoAnswer, refusal
from divvy.agent.mps.daemon import PROGRAM, MpsDaemon
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.model.api_names import STATE_FOLDER
from divvy.model.profile import MAX_MPS_CLIENTS

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
    program = folder / "usr/bin" / PROGRAM
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


async def test_runs_with_the_drivers_libraries_and_nothing_of_the_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are in no folder that loaders search, no program of MPS would start without."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    program, libraries = tmp_path / "usr/bin" / PROGRAM, tmp_path / "usr/lib64"
    for folder in (program.parent, libraries):
        folder.mkdir(parents=True)
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (libraries / name).touch()
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\n")
    program.chmod(0o755)
    asked = MpsDaemon(tmp_path, tmp_path / "GPU-0", tmp_path / "shm", "GPU-0", lambda: None)
    await asked._run((), "")
    lines = (tmp_path / "environment").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    for of_the_shell in ("PWD", "SHLVL", "OLDPWD", "_"):
        environment.pop(of_the_shell, None)
    assert environment == {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "LD_PRELOAD": f"{libraries}/libnvidia-ml.so.1:{libraries}/libcuda.so.1",
        "CUDA_MPS_PIPE_DIRECTORY": str(asked.pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(tmp_path / "GPU-0/log"),
    }


async def test_reads_pids_of_seven_digits(tmp_path: Path) -> None:
    asked = daemon(tmp_path)
    await asked.quit()
    assert asked.servers == {SERVER}
    assert (tmp_path / "told").read_text().splitlines() == [
        "get_server_list",
        f"get_client_list {SERVER}",
        f"terminate_client {SERVER} {CLIENT}",
        "quit -t 0",
    ]


async def test_waits_for_clients_that_do_not_end_no_longer_than_a_pod_has(tmp_path: Path) -> None:
    asked = daemon(tmp_path)
    program = tmp_path / "usr/bin" / PROGRAM
    program.write_text(program.read_text().replace("*) echo", "*) exec sleep 60; echo"))
    began = monotonic()
    with pytest.raises(NoAnswer, match="not ended within 2 s"):
        await asked.quit()
    assert monotonic() - began < 4


async def test_terminates_a_client_of_whichever_server_has_it(tmp_path: Path) -> None:
    asked = daemon(tmp_path, f"{OTHER_SERVER}\n{SERVER}")
    await asked.ask()
    await asked.terminate(CLIENT)
    assert (tmp_path / "told").read_text().splitlines() == [
        "get_server_list",
        f"terminate_client {OTHER_SERVER} {CLIENT}",
        f"terminate_client {SERVER} {CLIENT}",
    ]


@pytest.mark.parametrize("servers", ["316...", "PID  SERVER", "-1", "9" * 5000])
async def test_takes_no_cut_pid_for_an_answer(tmp_path: Path, servers: str) -> None:
    with pytest.raises(NoAnswer):
        await daemon(tmp_path, servers).ask()


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


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Take the place of a daemon of version 2 whose servers have no clients, and end slowly."""
    started: list[subprocess.Popen[bytes]] = []

    async def run(_: object, arguments: Sequence[str], text: str) -> str:
        assert arguments == ()
        await asyncio.sleep(0.01)
        if text.startswith("start_server"):
            started.append(subprocess.Popen(["sleep", "60"]))
        running = [str(server.pid) for server in started if server.poll() is None]
        return "\n".join(running) if text.startswith("get_server_list") else ""

    def end_soon(pid: int, number: int) -> None:
        asyncio.get_running_loop().call_later(0.3, kill, pid, number)

    kill = os.kill
    monkeypatch.setattr(MpsDaemon, "_run", run)
    monkeypatch.setattr(os, "kill", end_soon)
    monkeypatch.setattr(daemon_module, "_SERVER_START_SECONDS", 0.5)
    yield started
    monkeypatch.undo()
    for server in started:
        server.kill()
        server.wait()


CEILING = Ceiling(40960, 100)
SHARES = [Share(f"share_{number}", 10240, 25) for number in range(4)]


async def test_waits_for_the_end_of_a_server_that_it_ends(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    """With work on the GPU it takes its time; a container that starts would be its client."""
    asked = MpsDaemon(tmp_path, tmp_path, tmp_path, "GPU-0", lambda: None)
    await asked.prepare(SHARES[0], CEILING, alone=True)
    await asyncio.sleep(0.6)
    await asked.prepare(SHARES[1], CEILING, alone=False)
    assert [server.poll() is None for server in servers] == [False, True]


async def test_ends_an_idle_server_once_for_containers_that_start_together(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    """Each would wait for its own to be old enough, and end it below the one before."""
    asked = MpsDaemon(tmp_path, tmp_path, tmp_path, "GPU-0", lambda: None)
    await asked.limit(CEILING)
    await asyncio.gather(*(asked.prepare(share, CEILING, alone=False) for share in SHARES))
    assert len(servers) == 2
    # One that starts later cannot know what has become of them.
    await asked.prepare(SHARES[0], CEILING, alone=False)
    assert len(servers) == 3


async def test_pauses_between_questions_while_a_daemon_lists_a_server_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question is a process, on a node that may have no processor to spare."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    questions: list[str] = []

    async def run(_: object, arguments: Sequence[str], text: str) -> str:
        assert arguments == ()
        questions.append(text)
        await asyncio.sleep(0.001)
        return str(ended.pid)

    monkeypatch.setattr(MpsDaemon, "_run", run)
    monkeypatch.setattr(daemon_module, "_ANSWER_SECONDS", 0.5)
    asked = MpsDaemon(tmp_path, tmp_path, tmp_path, "GPU-0", lambda: None)
    with pytest.raises(NoAnswer, match="still lists a server that has ended"):
        await asked.prepare(SHARES[0], CEILING, alone=True)
    assert len(questions) < 20

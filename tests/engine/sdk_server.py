"""A process that has the Pulumi SDK loaded, and forks for each run of a program.

Loading the SDK costs a second of processor, and the engine's tests run some 300 programs. Each
fork is what ``python program_child.py`` would be: the unmodified SDK, with the caller's standard
streams, folder and environment. ``interpreter`` writes the stand-in for a project's
``.venv/bin/python``, which hands its own over and ends as the fork does.
"""

from __future__ import annotations

import array
import contextlib
import gc
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_INTERPRETER = """\
#!{python} -ISE
import array, json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    own = int(sys.argv[-1])  # the engine's end closes with this process's
    streams = array.array("i", [0, 1, 2, own])
    server.sendmsg([len(request).to_bytes(4, "big")],
                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(request)
    child = int.from_bytes(server.recv(4), "big")
    # A terminal's Ctrl-C reaches the whole group, of which the fork is no part.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(child, number))
    for number in (0, 1, 2, own):
        os.close(number)
    sys.stdout = sys.stderr = None
    status = server.recv(1)
os._exit(status[0] if status else 137)
"""


@contextlib.contextmanager
def sdk_server(folder: Path) -> Iterator[Path]:
    """Run the process; yield its socket."""
    address = folder / "sdk"
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.sdk_server", str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield address
        finally:
            process.terminate()


def write_interpreter(project: Path, address: Path) -> None:
    """Make the server the Python of a project."""
    path = project / ".venv/bin/python"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_INTERPRETER.format(python=sys.executable, address=str(address)))
    path.chmod(0o755)


def _serve(address: str) -> None:
    import pulumi_kubernetes  # noqa: F401

    # What is loaded is shared by all forks as long as none writes to it.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(16)
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            child = _fork(connection, server)
            if child is None:
                connection.close()
                continue
            threading.Thread(target=_follow, args=(connection, child), daemon=True).start()


def _fork(connection: socket.socket, server: socket.socket) -> int | None:
    """Fork for a request; return the child's process ID, None for a caller that is gone."""
    streams = array.array("i")
    head, extra, _, _ = connection.recvmsg(4, socket.CMSG_LEN(4 * streams.itemsize))
    if not extra:
        return None
    streams.frombytes(extra[0][2])
    request = b""
    while len(request) < int.from_bytes(head, "big"):
        part = connection.recv(1 << 16)
        if not part:
            return None
        request += part
    child = os.fork()
    if child == 0:
        server.close()
        connection.close()
        arguments, folder, environment = json.loads(request)
        _run(list(streams), arguments, folder, environment)
    for stream in streams:
        os.close(stream)
    return child


def _run(
    streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]
) -> None:
    own = streams.pop()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin = os.fdopen(0, closefd=False)
    # Unbuffered, as with -u: what is printed is read at once.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb", 0, closefd=False), write_through=True)
        for number in (1, 2)
    )
    # Options such as -u come first, the descriptor of the engine's socket or pipe last.
    sys.argv = arguments = [word for word in arguments if not word.startswith("-")]
    arguments[-1] = str(own)
    sys.path[0] = str(Path(arguments[0]).parent)
    code = 1
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _follow(connection: socket.socket, child: int) -> None:
    """Tell the caller how its fork ended; end the fork where the caller was killed."""
    with connection:
        ended = threading.Event()

        def end_with_caller() -> None:
            with contextlib.suppress(OSError):
                connection.recv(1)  # nothing ever comes: it returns when the caller is gone
            if not ended.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

        connection.sendall(child.to_bytes(4, "big"))
        threading.Thread(target=end_with_caller, daemon=True).start()
        _, status = os.waitpid(child, 0)
        ended.set()
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            connection.sendall(bytes([code if code >= 0 else 128 - code]))
            connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    _serve(sys.argv[1])

"""The first process of a container: ``python -m conformance.bare.container_init FILE``.

Does what an OCI runtime does with a specification, as far as a GPU's container can tell: mounts,
device nodes, createContainer hooks, a root of its own. It keeps the host's root itself, so that the
hook finds what it finds under a runtime.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.bare.processes import end_with_parent

REFUSED = 125
_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = (
    *(1, 2, 4, 8, 32, 4096, 16384, 1 << 18),
)
_FLAGS = {"ro": _RDONLY, "nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC}
_DEVICES = ("null", "zero", "full", "random", "urandom")
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Make the container, run its command; return its exit code, REFUSED where a hook refuses."""
    spec: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    _must(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID), "namespaces")
    first = os.fork()
    if first:
        return _ending(first)
    end_with_parent(signal.SIGKILL)
    os._exit(_first_process(spec))


def _first_process(spec: Mapping[str, Any]) -> int:
    try:
        root = Path(spec["rootfs"])
        _mount("none", "/", _REC | _PRIVATE)
        _bind(str(root), root, ("bind",))
        _must(_libc.mount(b"proc", bytes(root / "proc"), b"proc", 0, None), "/proc")
        _devices(root, spec["nodes"])
        for mount in spec["mounts"]:
            _bind(mount["hostPath"], root / mount["containerPath"].lstrip("/"), mount["options"])
        for hook in spec["hooks"]:
            if not _allows(hook, spec["bundle"]):
                return REFUSED
        program = os.fork()
        if program:
            return _ending(program)
        os.chroot(root)
        os.chdir("/")
        os.execve(spec["command"][0], spec["command"], dict(spec["env"]))
    except OSError as error:
        print(f"container: {error}", file=sys.stderr)
        return REFUSED + 1


def _devices(root: Path, nodes: Iterable[Mapping[str, str]]) -> None:
    _must(_libc.mount(b"tmpfs", bytes(root / "dev"), b"tmpfs", _NOSUID, b"mode=755"), "/dev")
    (root / "dev/shm").mkdir()
    for name in _DEVICES:
        _bind(f"/dev/{name}", root / "dev" / name, ("bind",))
    for node in nodes:
        _bind(node["hostPath"], root / node["path"].lstrip("/"), ("bind",))


def _bind(source: str, target: Path, options: Iterable[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_dir():
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.touch()
    _mount(source, str(target), _BIND)
    flags = sum(_FLAGS.get(option, 0) for option in options)
    if flags:
        _mount(source, str(target), _BIND | _REMOUNT | flags)


def _allows(hook: Mapping[str, Any], bundle: str) -> bool:
    """Call a hook as a runtime does: the state on its input, and its own variables alone."""
    state = {"ociVersion": "1.2.0", "id": "divvy-verify", "status": "creating", "bundle": bundle}
    done = subprocess.run(
        hook["args"],
        executable=hook["path"],
        env=dict(variable.split("=", 1) for variable in hook.get("env", ())),
        input=json.dumps(state),
        text=True,
        timeout=hook.get("timeout", 60),
        check=False,
    )
    return done.returncode == 0


def _mount(source: str, target: str, flags: int) -> None:
    _must(_libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None), target)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _ending(pid: int) -> int:
    """Wait for one process, and for all that it leaves behind, as a first process must."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())

"""The last run of Divvy on a node: ``python -m divvy.agent.clean_up`` removes the agent's files.

``divvy destroy`` starts it on the nodes of its agents once these have ended, and reads what it
leaves from its log. A container that holds a device starts again by the agent's files: they stay
while one does, and while it is not known whether one does. It begins again at whatever instant it
is killed, so the folder with the name of whose node this is goes last.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import grpc

from divvy.agent.claims.server import REGISTRATION
from divvy.agent.gpu.device_id import is_gpu
from divvy.agent.inject.tmpfs import Tmpfs
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.node_lock import NodeLock
from divvy.agent.settings import InvalidSetting, Settings, settings_from
from divvy.agent.web import Answer, serve_while, text
from divvy.model.api_names import CLAIMS_DRIVER, CLEANED_HOST, DOMAIN, LEFT
from divvy.model.phrases import some

_LOOKS, _LOOK_SECONDS = 40, 0.5


async def clean_up(settings: Settings, host: Path) -> tuple[str, ...]:
    """Remove what the agent has left on the node; return what stays, and why.

    ``host`` is where the host's /var/lib and /run are mounted.
    """
    lock = NodeLock(settings.state_folder, f"{settings.namespace}/{settings.config_map}")
    try:
        if other := await _taken(lock):
            return (f"all files: the node is served by the Divvy agent of {other}",)
        if reason := await _in_use(settings):
            return (f"all files: {reason}",)
        return tuple(_removed(settings, host))
    finally:
        lock.release()


async def _taken(lock: NodeLock) -> str:
    """Take the node from its agent, which may still be ending; return who else has it."""
    other = ""
    for _ in range(_LOOKS):
        other = lock.take()
        if not other or lock.is_free:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return other


async def _in_use(settings: Settings) -> str:
    """Return why containers may need the files, "" if none does.

    Ordinary init containers are not in the kubelet's answer: the containers that come after them
    hold the same devices, and are.
    """
    pod_resources = PodResources(settings.pod_resources_socket)
    try:
        for _ in range(_LOOKS):
            holders, active = await pod_resources.listed()
            # A kubelet that has just started has no pods until the API has told it of them.
            if settings.own_pod in active:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return "the kubelet does not say who holds devices (it does not list this pod)"
    except grpc.RpcError as error:
        return f"the kubelet does not say who holds devices ({error.code().name})"
    finally:
        await pod_resources.close()
    pods = sorted({holder.pod for holder in holders if is_gpu(holder.device_id)})
    if pods:
        return f"GPUs are held by {some(pods)}"
    if any(settings.cdi_folder.glob(f"{CLAIMS_DRIVER}-claim-*.json")):
        return "a claim has not been given back"
    return ""


def _removed(settings: Settings, host: Path) -> Iterator[str]:
    """Remove files and folders one after the other; yield those that stay."""
    shares, mps = (_below(host, path) for path in (settings.share_folder, settings.mps_folder))
    for folder in (shares, *mps.glob("*")):
        yield from _tried(folder, Tmpfs(folder, "", 0).unmount)
    files = [
        *settings.plugin_folder.glob("divvy-*.sock"),
        *settings.cdi_folder.glob(f"{DOMAIN}-*"),
        settings.registry_folder / REGISTRATION,
    ]
    for path in files:
        yield from _tried(path, partial(path.unlink, missing_ok=True))
    # By the host's folders: what is mounted into a container cannot be removed there.
    for path in (settings.claims_folder, settings.share_folder.parent, settings.state_folder):
        folder = _below(host, path)
        if folder.exists() or folder.is_symlink():
            yield from _tried(folder, partial(shutil.rmtree, folder))


def _below(host: Path, path: Path) -> Path:
    return host / str(path).lstrip("/")


def _tried(path: Path, remove: Callable[[], object]) -> Iterator[str]:
    try:
        remove()
    except OSError as error:
        yield f"{path}: {error.strerror}"


class _Process:
    """The pod around it: alive from the start, ready once the node is clean or will not be."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_done = False

    async def run(self) -> None:
        """Clean up, tell what stays, and wait to be ended."""
        for words in await clean_up(self._settings, Path(CLEANED_HOST)):
            print(f"{LEFT}{words}", flush=True)
        self._is_done = True
        await asyncio.Event().wait()

    async def ready(self) -> Answer:
        """Return whether it is done."""
        return text("200 OK", "done\n") if self._is_done else text("503 Service Unavailable", "")


async def _health() -> Answer:
    return text("200 OK", "alive\n")


def main(environment: Mapping[str, str] = os.environ) -> None:
    """Run until the pod is deleted."""
    logging.basicConfig(level=logging.INFO)
    try:
        settings = settings_from(environment)
    except InvalidSetting as problem:
        sys.exit(f"divvy clean-up: {problem}")
    process = _Process(settings)
    pages = {"/healthz": _health, "/readyz": process.ready}
    asyncio.run(serve_while(process.run(), settings.listen, settings.port, pages))


if __name__ == "__main__":
    main()

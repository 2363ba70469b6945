"""Makes a container a client of a GPU's MPS daemon, with its part of memory and threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from divvy.agent.inject.container_edits import (
    ContainerEdits,
    shared_folder,
    shared_memory,
    together,
)
from divvy.model.sharing import Sharing

PIPES = "/usr/lib/divvy/mps"
"""Where a container has the folder of its daemon's sockets."""


def client_edits(pipes: PurePath, memory: PurePath, sharing: Sharing) -> ContainerEdits:
    """Return the edits of a container; ``sharing`` is what its replicas are together.

    The folder of that GPU's sockets and the daemon's /dev/shm, ``memory`` on the host: neither the
    host's IPC namespace nor its processes. A container sees one GPU, which is the daemon's first
    too.
    """
    env = {"CUDA_MPS_PIPE_DIRECTORY": PIPES}
    if sharing.memory_mib is not None:
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={sharing.memory_mib}M"
    if sharing.threads is not None:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(sharing.threads)
    edits = together(shared_folder(PIPES, pipes), shared_memory(memory))
    return replace(edits, env=env)

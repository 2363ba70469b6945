"""A language host for Python that starts policy packs, and nothing else, as newer releases' do.

Pulumi's engine calls it by gRPC. The hosts that are published as modules are too old for packs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class PolicyHost(language_pb2_grpc.LanguageRuntimeServicer):
    """What the engine asks of it."""

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version="3.274.1")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Run the pack with the Python of its virtual environment until the engine has enough."""
        pack = Path(request.info.root_directory).resolve()
        python = pack / dict(request.info.options)["virtualenv"] / "bin/python"
        given = dict(pair.partition("=")[::2] for pair in request.env)
        with subprocess.Popen(
            [str(python), "-u", "-m", "pulumi.policy", *request.args, str(pack)],
            cwd=pack,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            context.add_callback(process.kill)
            for line in process.stdout:
                yield language_pb2.RunPluginResponse(stdout=line)
        yield language_pb2.RunPluginResponse(exitcode=process.returncode)


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(PolicyHost(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    with contextlib.suppress(KeyboardInterrupt):
        server.wait_for_termination()


if __name__ == "__main__":
    main()

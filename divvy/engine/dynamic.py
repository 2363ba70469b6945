"""The provider for ``pulumi-python:dynamic:*``: the SDK's own server in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import grpc

from divvy.engine.errors import StepFailed
from divvy.engine.provider import Diff, Provider, ProviderResult
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import urn_name
from divvy.engine.values import UNKNOWN, from_struct, to_struct
from divvy.engine.wire import provider_pb2 as api
from divvy.engine.wire import provider_pb2_grpc as stubs

_PROVIDER_KEY = "__provider"
# The module of an exception's class tells a user nothing.
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+: )")
_CHILD = Path(__file__).with_name("dynamic_child.py")
_LIMIT = [("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", -1)]


class DynamicProvider(Provider):
    """Runs dynamic resources; the process starts with the first of them.

    Whatever it has begun it ends: ``cancel`` does nothing. ``output`` receives each line that a
    provider prints.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        project: str,
        configuration: Mapping[str, Any],
        output: Callable[[str], None],
    ) -> None:
        self._configuration = configuration
        self._output = output
        self._python = python
        self._folder = folder
        self._project = project
        self._process: subprocess.Popen[bytes] | None = None
        self._stub: Any = None
        self._channel: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self._pipe = -1  # its end ends the process

    def warm(self) -> None:
        """Start the process while the program is still being read."""
        self._ready()

    def close(self) -> None:
        """End the process, even one that is just being started."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        with self._lock:
            if self._channel is not None:
                self._channel.close()
            if self._process is not None:
                self._process.kill()
                self._process.wait()  # but for its output: what it has started may still print
                self._process = None
                os.close(self._pipe)

    def check(
        self, urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let the provider check the inputs."""
        request = api.CheckRequest(urn=urn, olds=to_struct(old or {}), news=to_struct(new))
        answer = self._call("Check", request)
        if answer.failures:
            reasons = "; ".join(
                f"{failure.property}: {failure.reason}" for failure in answer.failures
            )
            raise StepFailed(f"{urn_name(urn)}: {reasons}")
        return from_struct(answer.inputs)

    def diff(self, resource: ResourceState, inputs: Mapping[str, Any]) -> Diff:
        """Let the provider compare; if it does not say, compare by value."""
        request = api.DiffRequest(
            id=resource.id,
            urn=resource.urn,
            olds=to_struct(resource.outputs),
            news=to_struct(inputs),
        )
        answer = self._call("Diff", request)
        changed = tuple(
            key
            for key in sorted({*resource.inputs, *inputs})
            if key != _PROVIDER_KEY and resource.inputs.get(key) != inputs.get(key)
        )
        if answer.changes == api.DiffResponse.DIFF_NONE:
            changed = ()
        elif answer.changes == api.DiffResponse.DIFF_SOME:
            changed = changed or tuple(answer.replaces) or ("",)
        return Diff(changed, tuple(answer.replaces), answer.deleteBeforeReplace)

    def drifted(
        self, resource: ResourceState, inputs: Mapping[str, Any], ignored: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Ask the provider whether the resource still exists; it reports nothing else."""
        try:
            return () if self.read(resource) is not None else None
        except StepFailed:
            # Its recorded inputs may no longer work, and that may be the reason for the change.
            if self.diff(resource, inputs).changed:
                return ()
            raise

    def create(
        self,
        urn: str,
        inputs: Mapping[str, Any],
        initial_outputs: Mapping[str, Any],
        *,
        timeout: float,
    ) -> ProviderResult:
        """Let the provider create."""
        request = api.CreateRequest(urn=urn, properties=to_struct(inputs), timeout=timeout)
        answer = self._call("Create", request)
        return ProviderResult(answer.id, from_struct(answer.properties))

    def preview_create(
        self, urn: str, inputs: Mapping[str, Any], *, replacing: bool
    ) -> ProviderResult:
        """Predict the inputs; what the provider adds is unknown."""
        return ProviderResult("", dict(inputs))

    def update(
        self,
        resource: ResourceState,
        inputs: Mapping[str, Any],
        *,
        timeout: float,
        ignored: tuple[str, ...],
    ) -> ProviderResult:
        """Let the provider update."""
        request = api.UpdateRequest(
            id=resource.id,
            urn=resource.urn,
            olds=to_struct(resource.outputs),
            news=to_struct(inputs),
            timeout=timeout,
        )
        answer = self._call("Update", request)
        return ProviderResult(resource.id, from_struct(answer.properties))

    def preview_update(
        self, resource: ResourceState, inputs: Mapping[str, Any], *, ignored: tuple[str, ...]
    ) -> ProviderResult:
        """Predict the inputs; outputs that are not inputs are unknown."""
        unknown = {key: UNKNOWN for key in resource.outputs if key not in inputs}
        return ProviderResult(resource.id, {**unknown, **inputs})

    def delete(self, resource: ResourceState, *, timeout: float) -> None:
        """Let the provider delete."""
        request = api.DeleteRequest(
            id=resource.id,
            urn=resource.urn,
            properties=to_struct(resource.outputs),
            timeout=timeout,
        )
        self._call("Delete", request)

    def read(self, resource: ResourceState) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Let the provider read."""
        request = api.ReadRequest(
            id=resource.id,
            urn=resource.urn,
            properties=to_struct(resource.outputs),
            inputs=to_struct(resource.inputs),
        )
        answer = self._call("Read", request)
        if not answer.id:
            return None
        inputs = from_struct(answer.inputs) if answer.HasField("inputs") else dict(resource.inputs)
        return inputs, from_struct(answer.properties)

    def find(self, pending: ResourceState) -> ResourceState | None:
        """Raise StepFailed: without an id a dynamic provider cannot be asked."""
        raise StepFailed(
            "whether its dynamic provider has created it cannot be determined. It is created again "
            "when the program registers it; `divvy refresh --clear-pending-creates` forgets it"
        )

    def _pass_on(self, printed: IO[bytes]) -> None:
        with printed:
            for line in printed:
                self._output(line.decode(errors="replace").rstrip("\n"))

    def _call(self, name: str, request: Any) -> Any:
        try:
            return getattr(self._ready(), name)(request)
        except grpc.RpcError as error:
            last = (error.details() or "").strip().splitlines()
            text = last[-1] if last else str(error.code())
            # An exception of the provider's own is UNKNOWN; everything else may be the process.
            own = error.code() == grpc.StatusCode.UNKNOWN
            raise StepFailed(_MODULE.sub("", text), unsure=not own) from None

    def _ready(self) -> Any:
        with self._lock:
            if self._closed:
                raise StepFailed("the dynamic provider is closed")
            if self._stub is None:
                environment = {
                    **os.environ,
                    "PULUMI_PROJECT": self._project,
                    "PYTHONPATH": os.pathsep.join(
                        part for part in (str(self._folder), os.environ.get("PYTHONPATH")) if part
                    ),
                }
                reading, self._pipe = os.pipe()
                self._process = subprocess.Popen(
                    [self._python, "-u", str(_CHILD), str(reading)],
                    stdout=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    cwd=self._folder,
                    env=environment,
                    pass_fds=[reading],
                    # A terminal's Ctrl-C goes to all processes of its foreground group.
                    start_new_session=True,
                )
                os.close(reading)
                printed = self._process.stdout
                assert printed is not None
                port = printed.readline().strip()
                if not port.isdigit():
                    raise StepFailed("the dynamic provider process did not start")
                # What nobody reads would fill the pipe, and the provider would wait forever.
                threading.Thread(target=self._pass_on, args=(printed,), daemon=True).start()
                self._channel = grpc.insecure_channel(f"127.0.0.1:{port.decode()}", options=_LIMIT)
                stub = stubs.ResourceProviderStub(self._channel)
                stub.Configure(api.ConfigureRequest(args=to_struct(self._configuration)))
                self._stub = stub
            return self._stub

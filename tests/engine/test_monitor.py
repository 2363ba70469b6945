"""The engine's gRPC service: it ends when its steps have."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import grpc
import pytest

from divvy.engine.monitor import Monitor, serving
from divvy.engine.wire import resource_pb2, resource_pb2_grpc


def test_waits_for_steps_under_way_also_after_an_interrupt() -> None:
    began, interrupted, ended = threading.Event(), threading.Event(), threading.Event()

    class SlowMonitor(Monitor):
        def __init__(self) -> None: ...

        def SupportsFeature(self, request: Any, context: Any) -> Any:  # noqa: N802
            began.set()
            interrupted.wait(30)
            time.sleep(0.3)
            ended.set()
            return resource_pb2.SupportsFeatureResponse()

    def call(address: str) -> None:
        with grpc.insecure_channel(address) as channel, contextlib.suppress(grpc.RpcError):
            stub = resource_pb2_grpc.ResourceMonitorStub(channel)
            stub.SupportsFeature(resource_pb2.SupportsFeatureRequest(id="x"))

    def interrupt() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.set()

    def serve() -> None:
        """Interrupt the service while the program has ended and a step goes on."""
        with serving(SlowMonitor(), 2) as address:
            threading.Thread(target=call, args=(address,)).start()
            assert began.wait(30)
            threading.Thread(target=interrupt).start()

    with pytest.raises(KeyboardInterrupt):
        serve()
    assert ended.is_set()

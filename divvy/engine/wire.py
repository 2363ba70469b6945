"""The messages and stubs of Pulumi's wire protocol, as the SDK ships them, without the SDK.

``import pulumi.runtime.proto`` would load the whole SDK (0.2 s), which only the program
needs: its own process has it. So the folder of generated files is loaded as a package
by itself.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = f"{__name__}_of_the_sdk"


def _load(*modules: str) -> list[Any]:
    sdk = find_spec("pulumi")
    if sdk is None or sdk.origin is None:
        raise ModuleNotFoundError("the engine needs the package pulumi", name="pulumi")
    package = ModuleType(_NAME)
    package.__path__ = [str(Path(sdk.origin).parent / "runtime/proto")]
    sys.modules[_NAME] = package
    return [import_module(f"{_NAME}.{module}") for module in modules]


engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, resource_pb2, resource_pb2_grpc = (
    _load(
        "engine_pb2",
        "engine_pb2_grpc",
        "provider_pb2",
        "provider_pb2_grpc",
        "resource_pb2",
        "resource_pb2_grpc",
    )
)

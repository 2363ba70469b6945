"""Property values as they travel: plain JSON with marks for what is unknown or secret.

The marks are those of Pulumi's wire protocol, so that a value is the same on
the wire, in the engine and (secrets encrypted) in the state file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 (a mark, not a secret)
_OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_ASSET_SIGNATURES = {"c44067f5952c0a294b673a41bacd8c17", "0def7320c3a5731c473e5ecbe6d01bc7"}


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a wire struct as plain values; whole numbers become int."""
    plain: dict[str, Any] = _whole_numbers(MessageToDict(struct))
    return plain


def to_struct(value: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return plain values as a wire struct."""
    struct = struct_pb2.Struct()
    struct.update(dict(value))
    return struct


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(entry) for entry in value]
    return value


def is_secret(value: Any) -> bool:
    """Tell whether a value is marked secret."""
    return isinstance(value, dict) and value.get(SIGNATURE_KEY) == SECRET_SIGNATURE


def secret(value: Any) -> dict[str, Any]:
    """Mark a value secret."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value}


def unwrapped(value: Any) -> Any:
    """Return a value without secret marks, for a provider."""
    return _map(value, lambda marked: unwrapped(marked["value"]))


def masked(value: Any) -> Any:
    """Return a value with every secret replaced by "[secret]", for people."""
    return _map(value, lambda _: "[secret]")


def _map(value: Any, on_secret: Callable[[dict[str, Any]], Any]) -> Any:
    if is_secret(value):
        return on_secret(value)
    if isinstance(value, dict):
        if value.get(SIGNATURE_KEY) == _OUTPUT_SIGNATURE:
            return _map(value.get("value", UNKNOWN), on_secret)
        return {key: _map(entry, on_secret) for key, entry in value.items()}
    if isinstance(value, list):
        return [_map(entry, on_secret) for entry in value]
    return value


def has_unknown(value: Any) -> bool:
    """Tell whether any part of a value is not known yet."""
    if isinstance(value, dict):
        return any(has_unknown(entry) for entry in value.values())
    if isinstance(value, list):
        return any(has_unknown(entry) for entry in value)
    return bool(value == UNKNOWN)


def has_secret(value: Any) -> bool:
    """Tell whether any part of a value is secret."""
    if is_secret(value):
        return True
    if isinstance(value, Mapping):
        return any(has_secret(entry) for entry in value.values())
    return isinstance(value, list) and any(has_secret(entry) for entry in value)


def has_asset(value: Any) -> bool:
    """Tell whether any part of a value is a Pulumi asset or archive."""
    if isinstance(value, dict):
        known = value.get(SIGNATURE_KEY) in _ASSET_SIGNATURES
        return known or any(has_asset(entry) for entry in value.values())
    return isinstance(value, list) and any(has_asset(entry) for entry in value)


def secrets_kept(outputs: dict[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Mark outputs secret where the input of the same name is secret at any depth.

    ``__inputs`` is the provider's copy of all of them.
    """

    def kept(key: str, value: Any) -> Any:
        source = inputs if key == "__inputs" else inputs.get(key)
        return secret(value) if has_secret(source) and not is_secret(value) else value

    return {key: kept(key, value) for key, value in outputs.items()}

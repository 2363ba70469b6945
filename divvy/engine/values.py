"""Property values as they travel: plain JSON with marks for what is unknown or secret.

The marks are those of Pulumi's wire protocol, so that a value is the same on
the wire, in the engine and (secrets encrypted) in the state file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
_OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_ASSET_SIGNATURES = {"c44067f5952c0a294b673a41bacd8c17", "0def7320c3a5731c473e5ecbe6d01bc7"}


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a wire struct as plain values; whole numbers become int."""
    plain: dict[str, Any] = flattened(_whole_numbers(MessageToDict(struct)))
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
    """Mark a value secret, once: what is secret inside it needs no mark of its own."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": unwrapped(value)}


def flattened(value: Any) -> Any:
    """Return a value with secrets inside secrets as one, and secret outputs as secrets."""
    if is_secret(value):
        return secret(value["value"])
    if isinstance(value, dict):
        if value.get(SIGNATURE_KEY) == _OUTPUT_SIGNATURE:
            known = value.get("value", UNKNOWN)
            return secret(known) if value.get("secret") else flattened(known)
        return {key: flattened(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [flattened(entry) for entry in value]
    return value


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


def with_marks(value: Any, source: Any) -> Any:
    """Mark a value secret where ``source`` is, at any depth.

    Where the two have different shapes, the whole value becomes secret.
    """
    if is_secret(value) or not has_secret(source):
        return value
    if is_secret(source):
        return secret(value)
    if isinstance(value, Mapping) and isinstance(source, Mapping):
        return {key: with_marks(entry, source.get(key)) for key, entry in value.items()}
    if isinstance(value, list) and isinstance(source, list) and len(value) == len(source):
        return [with_marks(entry, marks) for entry, marks in zip(value, source, strict=True)]
    return secret(value)


def with_same_marks(value: Any, before: Any) -> Any:
    """Mark a value secret wherever the very same value was secret in ``before``."""
    if is_secret(value) or not has_secret(before):
        return value
    if is_secret(before):
        return secret(value) if unwrapped(value) == before["value"] else value
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return {key: with_same_marks(entry, before.get(key)) for key, entry in value.items()}
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [with_same_marks(entry, former) for entry, former in zip(value, before, strict=True)]
    return value


def with_texts_marked(value: Any, texts: Collection[str]) -> Any:
    """Mark every text secret that repeats one of some texts."""
    if isinstance(value, str):
        return secret(value) if any(text in value for text in texts) else value
    if is_secret(value) or not texts:
        return value
    if isinstance(value, Mapping):
        return {key: with_texts_marked(entry, texts) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_texts_marked(entry, texts) for entry in value]
    return value


def secret_texts(value: Any) -> set[str]:
    """Return every text that is secret at any depth."""
    if is_secret(value):
        return set(_texts(value["value"]))
    if isinstance(value, Mapping):
        value = list(value.values())
    return set().union(*map(secret_texts, value)) if isinstance(value, list) else set()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)

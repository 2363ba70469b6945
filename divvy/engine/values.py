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
    return mapped_secrets(value, lambda marked: secret(marked["value"]))


def unwrapped(value: Any) -> Any:
    """Return a value without secret marks, for a provider."""
    return mapped_secrets(value, lambda marked: unwrapped(marked["value"]))


def masked(value: Any) -> Any:
    """Return a value with every secret replaced by "[secret]", for people."""
    return mapped_secrets(value, lambda _: "[secret]")


def mapped_secrets(value: Any, on_secret: Callable[[dict[str, Any]], Any]) -> Any:
    """Return a value with every secret replaced, and outputs as what is known of them."""
    if isinstance(value, dict):
        if value.get(SIGNATURE_KEY) == _OUTPUT_SIGNATURE:
            known = value.get("value", UNKNOWN)
            value = secret(known) if value.get("secret") else known
            return mapped_secrets(value, on_secret)
        if is_secret(value):
            return on_secret(value)
        return {key: mapped_secrets(entry, on_secret) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [mapped_secrets(entry, on_secret) for entry in value]
    return value


def without_marks(value: Any) -> Any:
    """Return a value from outside without the key by which this protocol marks secrets."""
    if isinstance(value, dict):
        return {key: without_marks(entry) for key, entry in value.items() if key != SIGNATURE_KEY}
    return [without_marks(entry) for entry in value] if isinstance(value, list) else value


def has_unknown(value: Any) -> bool:
    """Tell whether any part of a value is not known yet."""
    return any(part == UNKNOWN for part in _parts(value))


def has_secret(value: Any) -> bool:
    """Tell whether any part of a value is secret."""
    return any(map(is_secret, _parts(value)))


def has_asset(value: Any) -> bool:
    """Tell whether any part of a value is a Pulumi asset or archive."""
    return any(
        isinstance(part, dict) and part.get(SIGNATURE_KEY) in _ASSET_SIGNATURES
        for part in _parts(value)
    )


def texts_in(value: Any) -> set[str]:
    """Return every text in a value, at any depth."""
    return {part for part in _parts(value) if isinstance(part, str)}


def secret_texts(value: Any) -> set[str]:
    """Return every text that is secret, at any depth."""
    marked = (part["value"] for part in _parts(value) if is_secret(part))
    return set().union(*map(texts_in, marked))


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and all that it holds, at any depth."""
    yield value
    if isinstance(value, (Mapping, list)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from _parts(entry)


def with_marks(value: Any, source: Any, *, same: bool = False) -> Any:
    """Mark a value secret where ``source`` is, at any depth.

    If the two have different shapes, the whole value becomes secret. With ``same``, only the
    very same values do.
    """
    if is_secret(value) or not has_secret(source):
        return value
    if not is_secret(source):
        if isinstance(value, Mapping) and isinstance(source, Mapping):
            return {
                key: with_marks(entry, source.get(key), same=same) for key, entry in value.items()
            }
        if isinstance(value, list) and isinstance(source, list) and len(value) == len(source):
            pairs = zip(value, source, strict=True)
            return [with_marks(entry, marks, same=same) for entry, marks in pairs]
    elif unwrapped(value) == source["value"]:
        return secret(value)
    return value if same else secret(value)


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

"""The agent's checkpoint on the node's disk: what is decided from it when the API is away."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.hardware import gpu_from
from divvy.agent.gpu.holders import Holder, Version
from divvy.agent.gpu.plain_values import from_plain
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file
from divvy.model import DesiredGpu, Offer
from divvy.model.claims import Claims
from divvy.model.sharing import Sharing

_log = logging.getLogger(__name__)
_FILE = "state.json"
_ASIDE = f"{_FILE}.unreadable-"
_VERSION = 3
_MODE = 0o644
# What is raised while a damaged file is read; a number may be infinite.
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class CheckpointFile:
    """The checkpoint on the node's disk; ``saved`` is what an agent that starts now would find.

    A file that cannot be read, or of another version, is put aside, and this agent starts without:
    the rest comes from the API, the kubelet and the driver.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_damaged, self._why = False, ""
        self.saved = self._read()

    @property
    def problem(self) -> str:
        """Return a message if a file was put aside and is still there, else ""."""
        aside = sorted(self._folder.glob(f"{_ASIDE}*"))
        if not aside and not self._is_damaged:
            return ""
        where = ", ".join(map(str, aside or [self._folder / _FILE]))
        return (
            f"the agent started without its earlier state, which it could not read{self._why}: "
            f"it is kept in {where}; remove it when you no longer need it"
        )

    def _read(self) -> Checkpoint:
        path = self._folder / _FILE
        try:
            raw = json.loads(read_regular_file(path))
            if raw["version"] != _VERSION:
                raise ValueError(f"version {raw['version']}")  # noqa: TRY301
            return _decode(raw)
        except FileNotFoundError:
            return Checkpoint()
        except (OSError, *_DAMAGE) as error:
            _log.warning("%s is unreadable (%s): starting without it", path, error)
            self._is_damaged, self._why = True, f" ({error})"
            return Checkpoint()

    def _put_aside(self) -> None:
        """Keep what could not be read; raises OSError.

        An agent that ends after this and before it has saved its own leaves no checkpoint: the
        next starts without one too, and still says what was put aside.
        """
        if self._is_damaged:
            with suppress(FileNotFoundError):
                (self._folder / _FILE).replace(self._folder / f"{_ASIDE}{time.time_ns()}")
        self._is_damaged = False

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace it atomically and durably, where it is another or gone; raises OSError."""
        if not (self._folder / _FILE).exists():
            self.saved = Checkpoint()  # somebody removed it
        elif checkpoint == self.saved:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._put_aside()
        plain = {"version": _VERSION, **asdict(checkpoint)}
        text = json.dumps(plain, sort_keys=True, default=_claims_value)
        replace_file(self._folder / _FILE, text.encode(), _MODE)
        self.saved = checkpoint


def _decode(raw: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        config=_text(raw["config"]),
        labels={name: str(value) for name, value in raw["labels"].items()},
        profile=_text(raw["profile"]),
        assignment={int(index): uuid for index, uuid in raw["assignment"].items()},
        applied={uuid: _desired(gpu) for uuid, gpu in raw["applied"].items()},
        gpus=tuple(gpu_from(gpu) for gpu in raw["gpus"]),
        runtime=str(raw["runtime"]),
        last_seen=dict(raw["last_seen"]),
        faults=tuple(
            (str(gpu), None if gi is None else int(gi), str(reason))
            for gpu, gi, reason in raw["faults"]
        ),
        changing=tuple(str(uuid) for uuid in raw["changing"]),
        kubelet=_socket_version(raw["kubelet"]),
        shown=_holders(raw["shown"]),
        forgotten=_holders(raw["forgotten"]),
    )


def _holders(raw: Iterable[Mapping[str, Any]]) -> tuple[Holder, ...]:
    return tuple(from_plain(Holder, holder) for holder in raw)


def _socket_version(raw: Any) -> Version:
    return None if raw is None else (int(raw[0]), int(raw[1]))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is not a string")


def _desired(raw: Mapping[str, Any]) -> DesiredGpu:
    offers = tuple(
        from_plain(Offer, offer, sharing=from_plain(Sharing, offer["sharing"]))
        for offer in raw["offers"]
    )
    claims = None if raw["claims"] is None else _claims(raw["claims"])
    return from_plain(DesiredGpu, raw, offers=offers, claims=claims)


def _claims(raw: dict[str, Any]) -> Claims:
    """Read a rule's claims without what this agent does not know of them."""
    try:
        return Claims.model_validate(raw)
    except ValidationError as error:
        unknown = [
            problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"
        ]
        if len(unknown) < error.error_count():
            raise
    for *path, name in unknown:
        owner: Any = raw
        for part in path:
            owner = owner[part]
        del owner[name]
    return Claims.model_validate(raw)


def _claims_value(value: object) -> Any:
    if isinstance(value, Claims):
        return value.model_dump(mode="json")
    raise TypeError(f"{value!r} cannot be written to the checkpoint")

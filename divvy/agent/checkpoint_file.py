"""The agent's checkpoint on the node's disk: what is decided from it when the API is away."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from divvy.agent.decide.checkpoint import Checkpoint
from divvy.agent.decide.hardware import gpu_from
from divvy.agent.decide.holders import Holder
from divvy.agent.inject.atomic_file import replace_file
from divvy.model import DesiredGpu, Offer
from divvy.model.claims import Claims

_log = logging.getLogger(__name__)
_FILE = "state.json"
_VERSION = 3
_MODE = 0o644


class CheckpointFile:
    """The checkpoint on the node's disk; ``saved`` is what an agent that starts now would find."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.saved = self._read()

    def _read(self) -> Checkpoint:
        """Read it; a missing or damaged file is an empty one: it is rebuilt from the API."""
        path = self._folder / _FILE
        try:
            raw = json.loads(path.read_text())
            return _decode(raw) if raw["version"] == _VERSION else Checkpoint()
        except FileNotFoundError:
            return Checkpoint()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s is unreadable (%s): starting without it", path, error)
            return Checkpoint()

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace it atomically and durably, where it is another or gone; raises OSError."""
        if not (self._folder / _FILE).exists():
            self.saved = Checkpoint()  # somebody removed it
        elif checkpoint == self.saved:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
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
        # Agents before this one wrote neither.
        changing=tuple(str(uuid) for uuid in raw.get("changing", ())),
        forgotten=tuple(Holder(**holder) for holder in raw.get("forgotten", ())),
    )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


def _desired(raw: Mapping[str, Any]) -> DesiredGpu:
    offers = tuple(Offer(**offer) for offer in raw["offers"])
    # Agents before this one wrote none.
    claims = None if raw.get("claims") is None else Claims.model_validate(raw["claims"])
    return DesiredGpu(**{**raw, "offers": offers, "claims": claims})


def _claims_value(value: object) -> Any:
    if isinstance(value, Claims):
        return value.model_dump(mode="json")
    raise TypeError(f"{value!r} is no value of a checkpoint")

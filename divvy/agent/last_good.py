"""What survives the agent on the node's disk: the last good configuration and where it led."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from divvy.agent.hardware import Gpu, MigInstance
from divvy.model import DesiredGpu, Offer

_log = logging.getLogger(__name__)
_FILE = "state.json"
_VERSION = 1


@dataclass(frozen=True)
class LastGood:
    """The agent's memory.

    ``config`` is the canonical JSON last accepted; ``labels`` the node's labels
    then; ``runtime`` its container runtime; ``profile`` what was selected;
    ``assignment`` maps GPU indices to UUIDs as first seen; ``applied`` the layout
    offered per GPU; ``gpus`` what the driver showed last.
    """

    config: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    assignment: Mapping[int, str] = field(default_factory=dict)
    applied: Mapping[str, DesiredGpu] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    runtime: str = ""


def load(folder: Path) -> LastGood:
    """Read the memory; a missing or damaged file is an empty one (it is rebuilt from the API)."""
    try:
        raw = json.loads((folder / _FILE).read_text())
        return _decode(raw) if raw["version"] == _VERSION else LastGood()
    except FileNotFoundError:
        return LastGood()
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s is unreadable (%s): starting without it", folder / _FILE, error)
        return LastGood()


def save(folder: Path, state: LastGood) -> None:
    """Replace the memory atomically and durably."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{_FILE}.new"
    with scratch.open("w") as file:
        json.dump({"version": _VERSION, **asdict(state)}, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(folder / _FILE)


def _decode(raw: Mapping[str, Any]) -> LastGood:
    return LastGood(
        config=raw["config"],
        labels=raw["labels"],
        profile=raw["profile"],
        assignment={int(index): uuid for index, uuid in raw["assignment"].items()},
        applied={uuid: _desired(gpu) for uuid, gpu in raw["applied"].items()},
        gpus=tuple(_gpu(gpu) for gpu in raw["gpus"]),
        runtime=raw.get("runtime", ""),
    )


def _desired(raw: Mapping[str, Any]) -> DesiredGpu:
    return DesiredGpu(**{**raw, "offers": tuple(Offer(**offer) for offer in raw["offers"])})


def _gpu(raw: Mapping[str, Any]) -> Gpu:
    instances = tuple(MigInstance(**instance) for instance in raw["instances"])
    capability = tuple(raw["compute_capability"])
    return Gpu(**{**raw, "instances": instances, "compute_capability": capability})

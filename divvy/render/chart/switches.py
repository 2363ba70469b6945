"""The switches of a stack file, each with the template action that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from divvy.render.chart.actions import POOL


@dataclass(frozen=True)
class Switch:
    """One switch: the action that opens what depends on it, how to switch it off, and where."""

    opening: str
    off: Callable[[dict[str, Any]], None]
    component: str | None = None


def _without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def off(value: dict[str, Any]) -> None:
        del reduce(getitem, keys[:-1], value)[keys[-1]]

    return off


def _false(*keys: str) -> Callable[[dict[str, Any]], None]:
    def off(value: dict[str, Any]) -> None:
        reduce(getitem, keys[:-1], value)[keys[-1]] = False

    return off


def _without_all(*offs: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def off(value: dict[str, Any]) -> None:
        for switch in offs:
            switch(value)

    return off


_without_shares = _without_all(
    *(_without("profiles", "claimed", "claims", key) for key in ("shares", "tenants"))
)


def _value(*keys: str, default: str) -> str:
    words = " ".join(f'"{key}"' for key in keys)
    return f"dig {words} {default} @.Values.AsMap"


READERS = _value("observability", "networkPolicy", default="dict")

SWITCHES = (
    Switch(
        f'if eq ({_value("change", "policy", default=chr(34) + "wait" + chr(34))}) "evict"',
        _without("change"),
    ),
    Switch(
        'if include "divvy.watchesMemory" @',
        _without_all(
            _without("profiles", "watched", "timeSlicing", "memoryLimit"),
            _without_shares,
            _without("profiles", "together"),
        ),
        "agent",
    ),
    Switch('if include "divvy.byMps" @', _without("profiles", "together"), "observability"),
    Switch('if include "divvy.byClaims" @', _without("profiles", "claimed"), "observability"),
    Switch('if include "divvy.byClaims" @', _without("profiles", "claimed"), "agent"),
    Switch(
        f'if eq ({_value("quota", "shares", default=chr(34) + "optional" + chr(34))}) "required"',
        _without("quota"),
        "claims",
    ),
    Switch(
        'if include "divvy.sharesByClaims" @',
        _without_shares,
        "claims",
    ),
    Switch(
        'if ne (include "divvy.claimedMig" @) "[]"',
        _without("profiles", "claimed", "claims", "mig"),
        "claims",
    ),
    Switch(
        f'if eq ({_value("names", "classes", default=chr(34) * 2)}) "nvidia"',
        _without("names", "classes"),
        "claims",
    ),
    Switch('if include "divvy.byClaims" @', _without("profiles", "claimed"), "claims"),
    Switch("if @.Values.devices", _without("devices")),
    Switch("with @.Values.imagePullSecrets", _without("imagePullSecrets")),
    Switch('with include "divvy.tolerations" @', _without("pools", POOL, "tolerations"), "agent"),
    Switch('if include "divvy.selects" @', _without("pools", "another", "select"), "agent"),
    Switch("with $pool.tolerations", _without("pools", POOL, "tolerations"), "node-runtime"),
    Switch("with $pool.select", _without("pools", POOL, "select"), "node-runtime"),
    Switch(
        f"if {_value('observability', 'serviceMonitor', default='false')}",
        _false("observability", "serviceMonitor"),
    ),
    Switch(
        f"if {_value('observability', 'dashboard', default='true')}",
        _false("observability", "dashboard"),
    ),
    Switch(
        f"if {_value('observability', 'alerts', default='false')}",
        _false("observability", "alerts"),
    ),
    Switch(f"if {READERS}", _without("observability", "networkPolicy")),
)

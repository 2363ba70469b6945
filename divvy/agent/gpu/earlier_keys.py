"""``Sharing`` in the agent's files: as a mapping, and beside it as the release before kept it.

That release may come back after this one: it needs these keys, and ignores ``sharing``. Files that
it wrote have these keys alone. The next release can do without this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divvy.agent.gpu.plain_values import from_plain
from divvy.model import Offer
from divvy.model.sharing import Action, Sharing


def offer_keys(offer: Offer) -> dict[str, Any]:
    """Return the earlier keys of an offer in ``state.json``."""
    sharing = offer.sharing
    return {
        "replicas": sharing.replicas,
        "fail_requests_greater_than_one": sharing.one_per_container,
        "memory_limit_mib": sharing.memory_mib,
        "memory_enforced": sharing.is_enforced,
        "memory_prevented": sharing.is_prevented,
        "memory_oversubscribed": sharing.oversubscribed,
        "compute": sharing.compute,
    }


def offer_sharing(raw: Mapping[str, Any]) -> Sharing:
    """Read an offer's sharing, of the release before too; raises KeyError or TypeError."""
    if "sharing" in raw:
        return from_plain(Sharing, raw["sharing"])
    action: Action = "enforce" if raw.get("memory_enforced") else "warn"
    sharing = Sharing(
        raw["replicas"], raw["fail_requests_greater_than_one"], compute=raw.get("compute")
    ).times(1)
    return replace(
        sharing,
        memory_mib=raw["memory_limit_mib"],
        action="prevent" if raw.get("memory_prevented") else action,
        oversubscribed=raw.get("memory_oversubscribed", False),
    )


def gpu_keys(sharing: Sharing) -> dict[str, Any]:
    """Return the earlier keys of an offered GPU in ``claims.json``."""
    return {"compute": sharing.compute, "oversubscribed": sharing.oversubscribed}


def gpu_sharing(raw: Mapping[str, Any]) -> Sharing:
    """Read an offered GPU's sharing, of the release before too; raises TypeError."""
    if "sharing" in raw:
        return from_plain(Sharing, raw["sharing"])
    return Sharing(
        action="prevent",
        compute=raw.get("compute", "share"),
        oversubscribed=raw.get("oversubscribed", False),
    )


def device_keys(sharing: Sharing) -> dict[str, Any]:
    """Return the earlier keys of a claim's device in ``claims.json``."""
    return {**gpu_keys(sharing), "memory_mib": sharing.memory_mib, "cores": sharing.weight}


def device_sharing(raw: Mapping[str, Any]) -> Sharing:
    """Read the sharing of a claim's device, of the release before too; raises KeyError."""
    if "sharing" in raw:
        return from_plain(Sharing, raw["sharing"])
    return replace(gpu_sharing(raw), memory_mib=raw["memory_mib"], weight=raw["cores"])

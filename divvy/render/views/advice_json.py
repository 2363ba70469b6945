"""`divvy advise` as JSON; docs/advise.md describes it."""

import json
from dataclasses import asdict
from typing import Any

from divvy.advise.advice import Advice, Option, PoolAdvice


def advice_json(advice: Advice) -> str:
    """Return the advice as JSON text."""
    document = {
        "cluster": advice.cluster,
        "begin": advice.begin,
        "end": advice.end,
        "headroom": advice.headroom,
        "notes": list(advice.notes),
        "pools": [_pool(pool) for pool in advice.pools],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _pool(pool: PoolAdvice) -> dict[str, Any]:
    times = pool.times
    recommended = None if pool.recommended is None else pool.best.index(pool.recommended)
    return {
        "pool": pool.pool,
        "profile": pool.profile,
        "model": pool.model or None,
        "nodes": pool.nodes,
        "gpusPerNode": pool.gpus,
        "pods": pool.pods,
        "podsNotMeasured": pool.unmeasured,
        "unknown": pool.unknown,
        "reason": pool.reason,
        "recommended": recommended,
        "today": None if pool.today is None else _option(pool.today),
        "best": [_option(option) for option in pool.best],
        "notes": list(pool.notes),
        "timeline": None
        if times is None
        else {
            "begin": times.begin,
            "stepSeconds": times.seconds,
            "neededGpus": [round(number, 2) for number in times.needed],
            "givenGpus": [round(number, 2) for number in times.given],
        },
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "words": option.words,
        "profile": option.profile,
        "gpus": option.gpus,
        "nodes": option.nodes,
        "spareNodes": option.spare_nodes,
        "idleGpuHours": round(option.idle_hours, 1),
        "refused": list(option.refused),
        "killed": list(option.killed),
        "slowed": list(option.slowed),
        # For ever is no number in JSON.
        "waiting": [
            {"pod": name, "seconds": None if seconds == float("inf") else seconds}
            for name, seconds in option.waiting
        ],
        "allow": list(option.to_allow),
        "lost": [asdict(change) for change in option.lost],
        "gained": [asdict(change) for change in option.gained],
        "requests": [
            {"before": before, "after": after, "pods": count}
            for (before, after), count in option.requests.items()
        ],
        "notes": list(option.notes),
    }

"""Plan and diff as JSON: a documented, stable shape for scripts."""

import json
from typing import Any

from divvy.plan import Change, Device, Difference, Guarantees, NodePlan, Plan, PoolPlan
from divvy.plan.review.review import Review
from divvy.plan.review.verdict import verdict
from divvy.render.views.verdict import effect_words, verdict_words


def plan_json(plan: Plan) -> str:
    """Return a plan as JSON text."""
    return _text(plan_document(plan))


def difference_json(difference: Difference) -> str:
    """Return a diff as JSON text."""
    return _text(difference_document(difference))


def review_json(review: Review) -> str:
    """Return the diffs of several stacks as JSON text."""
    return _text(
        {
            "stacks": [difference_document(difference) for difference in review.changed],
            "unchangedStacks": list(review.unchanged),
            "deletedStacks": list(review.deleted),
            "invalidBefore": dict(review.invalid),
        }
    )


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "cluster": plan.cluster,
        "pools": [_pool(pool) for pool in plan.pools],
        "totals": dict(plan.totals),
    }


def difference_document(difference: Difference) -> dict[str, Any]:
    """Return a diff as plain values."""
    return {
        "before": difference.before,
        "after": difference.after,
        "verdict": _verdict(difference),
        "changes": [_change(change) for change in difference.changes],
        "totals": {
            total.resource: {"before": total.before, "after": total.after}
            for total in difference.totals
        },
        "settings": [
            {"path": setting.path, "before": setting.before, "after": setting.after}
            for setting in difference.settings
        ],
        "renamedPools": dict(difference.renamed),
        "unchangedPools": list(difference.unchanged),
        "objects": {
            "created": list(difference.objects.created),
            "updated": list(difference.objects.updated),
            "deleted": list(difference.objects.deleted),
        },
        "effects": list(effect_words(difference)),
    }


def _verdict(difference: Difference) -> dict[str, Any]:
    result = verdict(difference)
    return {
        "level": result.level,
        "gpus": result.gpus,
        "nodes": result.nodes,
        "pools": list(result.pools),
        "unpredicted": list(result.unpredicted),
        "policy": result.policy,
        "withdrawn": list(result.withdrawn),
        "endsClients": result.ends_clients,
        "words": verdict_words(difference),
    }


def _pool(pool: PoolPlan) -> dict[str, Any]:
    return {
        "name": pool.name,
        "count": pool.count,
        **_node(pool.node or NodePlan(pool.profile, (), (), (), ())),
        "overrides": {name: _node(node) for name, node in pool.overrides.items()},
    }


def _node(node: NodePlan) -> dict[str, Any]:
    return {
        "profile": node.profile,
        "perNode": dict(node.per_node),
        "devices": [_device(device) for device in node.devices],
        "claimable": _claimable(node),
        "notes": list(node.notes),
    }


def _claimable(node: NodePlan) -> list[dict[str, Any]]:
    return [
        {
            "name": kind.name,
            "atMost": kind.at_most,
            "words": kind.words,
            "guarantees": _guarantees(kind.guarantees),
        }
        for kind in node.claimable
    ]


def _device(device: Device) -> dict[str, Any]:
    return {
        "resource": device.resource,
        "gpu": device.gpu,
        "kind": device.kind,
        "memoryMiB": device.memory_mib,
        "sms": device.sms,
        "guarantees": _guarantees(device.guarantees),
    }


def _guarantees(promise: Guarantees | None) -> dict[str, str] | None:
    return None if promise is None else dict(promise.items())


def _change(change: Change) -> dict[str, Any]:
    older = change.before if change.nodes_before else None
    newer = change.after if change.nodes_after else None
    return {
        "pool": change.pool,
        "node": change.node,
        "nodes": {"before": change.nodes_before, "after": change.nodes_after},
        "profile": {
            "before": older.profile if older else None,
            "after": newer.profile if newer else None,
        },
        "resources": [
            {
                "resource": row.resource,
                "before": row.before,
                "after": row.after,
                "atMost": row.at_most,
                "perNode": {"before": row.per_node_before, "after": row.per_node_after},
                "guarantees": {
                    "before": _guarantees(row.guarantees_before),
                    "after": _guarantees(row.guarantees_after),
                },
            }
            for row in change.resources
        ],
        "disruption": {
            "level": change.disruption.level,
            "gpus": list(change.disruption.gpus),
            "reason": change.disruption.reason,
        },
    }


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

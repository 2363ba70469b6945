"""The result of `divvy fit`, for the terminal and as JSON; docs/review-in-ci.md describes it."""

import json
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.model.phrases import plural
from divvy.plan.fit import Fit, Obstacle, Place, PodsFit
from divvy.plan.fit.shortage import ShortageKind

# So many of the nodes that do not take a pod are shown.
_MOST = 10


def fit_text(fit: Fit) -> RenderableType:
    """Return for each pod where it would go, or what is in the way."""
    wanted = sum(pod.wanted for pod in fit.pods)
    fitting = sum(pod.fitting for pod in fit.pods)
    unknown = sum(pod.unknown for pod in fit.pods)
    against = "alongside what is held now" if fit.is_live else "where nothing is held"
    text = f": {fitting} of {wanted:,} pods fit {against}"
    text += f", {unknown:,} {'is' if unknown == 1 else 'are'} unknown" if unknown else ""
    heading = Text.assemble((fit.cluster, "bold"), text)
    parts: list[RenderableType] = [heading]
    for pod in fit.pods:
        parts += ["", *pods_fit_lines(pod)]
    parts += [Text(f"note: {note}", style="dim") for note in fit.notes]
    return Group(*parts)


def fit_json(fit: Fit) -> str:
    """Return whether pods fit as JSON text."""
    document = {
        "cluster": fit.cluster,
        "live": fit.is_live,
        "fits": bool(fit),
        "pods": [_pods_document(pod) for pod in fit.pods],
        "notes": list(fit.notes),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def pods_fit_lines(pods_fit: PodsFit) -> list[RenderableType]:
    """Return where pods that are alike would go, or what is in the way."""
    pod = pods_fit.pod
    kind = (
        ""
        if pod.kind == "Pod" and pods_fit.wanted == 1
        else f" ({pod.kind}, {plural(pods_fit.wanted, 'pod')})"
    )
    verdict = Text("fits" if pods_fit.wanted == 1 else "fit", style="green")
    if pods_fit.left == pods_fit.wanted and pods_fit.wanted:
        verdict = Text("does not fit" if pods_fit.wanted == 1 else "do not fit", style="yellow")
    elif pods_fit.unknown == pods_fit.wanted and pods_fit.wanted:
        verdict = Text("unknown", style="yellow")
    elif pods_fit.unknown:
        fitting = f"{pods_fit.fitting:,} fit, " if pods_fit.fitting else ""
        left = f", {pods_fit.left:,} {'does' if pods_fit.left == 1 else 'do'} not fit"
        text = f"{fitting}{pods_fit.unknown:,} unknown{left if pods_fit.left else ''}"
        verdict = Text(text, style="yellow")
    elif pods_fit.left:
        verdict = Text(f"{pods_fit.fitting:,} fit, {pods_fit.left:,} not", style="yellow")
    parts: list[RenderableType] = [Text.assemble((pod.full_name, "bold"), f"{kind}: ", verdict)]
    parts += [_indented(_place(place, pods_fit.wanted)) for place in pods_fit.places]
    if pods_fit.reason:
        parts.append(_indented(pods_fit.reason))
        others = [obstacle for obstacle in pods_fit.obstacles if _adds(obstacle, pods_fit.reason)]
        parts += [_indented(_obstacle(other), 4, "dim") for other in others[:_MOST]]
        if len(others) > _MOST:
            parts.append(_indented(f"and {len(others) - _MOST} more", 4, "dim"))
    parts += [_indented(note, 2, "dim") for note in pod.notes]
    return parts


def _place(place: Place, wanted: int) -> str:
    number = "" if wanted == 1 else f"{place.count:,} on "
    devices = f": {', '.join(place.devices)}" if place.devices else ""
    unless = f", if its nodes {' and '.join(place.unless)}" if place.unless else ""
    return f"{number}{place.nodes}{devices}{unless}"


def _adds(obstacle: Obstacle, reason: str) -> bool:
    """Return whether an obstacle says more than the reason, and than that nothing is there."""
    return obstacle.lack is not ShortageKind.NOT_OFFERED and obstacle.words not in reason


def _obstacle(obstacle: Obstacle) -> str:
    nodes = (
        f" ({obstacle.count:,} nodes)"
        if obstacle.count > 1 and obstacle.nodes.startswith("pool ")
        else ""
    )
    return f"{obstacle.nodes}{nodes}: {obstacle.reason}"


def _indented(text: str, by: int = 2, style: str = "") -> RenderableType:
    return Padding(Text(text, style=style), (0, 0, 0, by))


def _pods_document(pod: PodsFit) -> dict[str, Any]:
    return {
        "kind": pod.pod.kind,
        "namespace": pod.pod.namespace,
        "name": pod.pod.name,
        "priority": pod.pod.priority,
        "pods": pod.wanted,
        "fit": pod.fitting,
        "unknown": pod.unknown,
        "places": [
            {
                "pool": place.pool,
                "node": place.node,
                "pods": place.count,
                "devices": list(place.devices),
                "if": list(place.unless),
            }
            for place in pod.places
        ],
        "reason": pod.reason,
        "obstacles": [
            {
                "pool": obstacle.pool,
                "where": obstacle.nodes,
                "nodes": obstacle.count,
                "reason": obstacle.reason,
            }
            for obstacle in pod.obstacles
        ],
        "notes": list(pod.pod.notes),
    }

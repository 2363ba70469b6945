"""Decides whether a container with a limited share may start, by what else it holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from divvy.agent.gpu.device_id import is_gpu
from divvy.agent.gpu.holders import Holder
from divvy.agent.plugin.allocation import Refused

OF_THE_LIMITER = "whose driver library may replace this share's limiter"
OF_THE_DRIVERS_LIMIT = "whose limits may take the place of this share's"
OF_MPS = "which the MPS daemon of this share does not serve"


def require_no_other_gpu(
    resource: str,
    device_ids: Sequence[str],
    holders: Collection[Holder],
    without_limiter: Collection[tuple[str, str, str]] = (),
    why: str = OF_THE_LIMITER,
) -> None:
    """Raise Refused if the container of these devices has a GPU of another resource, too.

    An init container and one after it may have the same devices: then neither may start.
    ``without_limiter`` are those that were allocated their devices before there was a limit, as
    (pod UID, container, resource): they start again as they were.
    """
    containers = containers_with(resource, device_ids, holders)
    if not containers:
        raise Refused(
            f"{resource}: the kubelet does not show which container has {', '.join(device_ids)}; "
            "the start will be retried"
        )
    limited = [
        container
        for container in containers
        if (container.pod_uid, container.container, resource) not in without_limiter
    ]
    for other in sorted(holders):
        if other.resource == resource or not is_gpu(other.device_id):
            continue
        if any(_in_same_container(other, holder) for holder in limited):
            raise Refused(
                f"{resource}: container {other.container} also has {other.resource}, {why}; "
                "request them in two containers"
            )


def containers_with(
    resource: str, device_ids: Sequence[str], holders: Iterable[Holder]
) -> tuple[Holder, ...]:
    """Return one holder of each container that has all of these devices."""
    held: dict[tuple[str, str, str], set[str]] = {}
    for holder in holders:
        if holder.resource == resource:
            held.setdefault((holder.pod, holder.container, holder.pod_uid), set()).add(
                holder.device_id
            )
    return tuple(
        Holder(pod, container, resource, "", uid)
        for (pod, container, uid), resources in held.items()
        if resources.issuperset(device_ids)
    )


def _in_same_container(holder: Holder, other: Holder) -> bool:
    if holder.container != other.container:
        return False
    # The next pod of a StatefulSet has the name of the last one.
    if holder.pod_uid and other.pod_uid:
        return holder.pod_uid == other.pod_uid
    return bool(holder.pod) and holder.pod == other.pod

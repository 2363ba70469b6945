"""What a stack made on a lab that is gone: it went with the lab, and so does the stack's state."""

from __future__ import annotations

from divvy.cli.target import target_of
from divvy.engine.providers import recorded_cluster
from divvy.engine.state.lock import locked
from divvy.engine.subset import PROVIDER_PREFIX


def forget_earlier_lab(stack: str, server: str) -> bool:
    """Forget the state of a stack if all its clusters were labs at this address; say whether.

    Without it, the next deployment would look in vain for the cluster that holds its objects.
    """
    store = target_of(stack).store()
    if not store.exists:
        return False
    providers = [
        resource for resource in store.load().resources if resource.type.startswith(PROVIDER_PREFIX)
    ]
    clusters = map(recorded_cluster, providers)
    servers = {cluster["server"] for cluster in clusters if cluster}
    if servers != {server}:
        return False
    with locked(store.root, store.project, store.stack):
        store.remove()
    return True

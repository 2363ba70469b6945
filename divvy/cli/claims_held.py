"""Stops what would take the driver of claims away from pods that hold some."""

import typer

from divvy.cli.cluster_reader import reading
from divvy.cli.errors import fail
from divvy.model import Cluster
from divvy.plan.live_claims import pods_with_claims

_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
_SHOWN = 5


def check_held(cluster: Cluster, *, preview: bool) -> None:
    """End with an error where pods hold claims, which nobody could give back; preview only says it.

    Raises EngineError.
    """
    with reading(cluster.kubeconfig, cluster.context) as reader:
        pods = pods_with_claims(reader.listed(_CLAIMS))
    if not pods:
        return
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    text = (
        f"pods hold claims: {', '.join(pods[:_SHOWN])}{more}; without a profile with `claims` "
        "nothing returns their devices, and they stay Terminating: end them first"
    )
    if not preview:
        fail(text)
    typer.echo(f"warning: {text}", err=True)

"""Tells on which nodes of a cluster a profile's memory limits are kept by a weaker means."""

import typer

from divvy.errors import CommandError
from divvy.live.cluster_reader import reading
from divvy.model import Cluster
from divvy.plan.predict.enforcement_warnings import namespace_warnings, rung_warnings


def warn_of_weaker_rungs(cluster: Cluster) -> None:
    """Warn of nodes whose driver is too old for the strongest means that a profile has."""
    rules = [rule for profile in cluster.profiles.values() for rule in profile.rules]
    limits = (rule.sharing.memory_limit for rule in rules if rule.sharing)
    by_driver = any(limit and limit.enforcement in ("auto", "driver") for limit in limits)
    if not by_driver and not any(rule.mps for rule in rules):
        return
    try:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            nodes = list(reader.paged("/api/v1/nodes"))
            warnings = [*rung_warnings(cluster, nodes), *namespace_warnings(cluster, nodes)]
    except CommandError as refusal:
        warnings = [f"it is not known which drivers limit memory or have MPS 3: {refusal}"]
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)

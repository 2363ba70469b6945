"""Tells on which nodes of a cluster a profile's memory limits are kept by a weaker means."""

import typer

from divvy.cli.cluster_reader import reading
from divvy.cli.errors import CommandError
from divvy.model import Cluster
from divvy.plan.weaker_rungs import rung_warnings


def warn_of_weaker_rungs(cluster: Cluster) -> None:
    """Warn of nodes whose driver limits no memory, where a profile leaves that to it."""
    rules = (rule for profile in cluster.profiles.values() for rule in profile.rules)
    limits = (rule.sharing.memory_limit for rule in rules if rule.sharing)
    if not any(limit and limit.enforcement in ("auto", "driver") for limit in limits):
        return
    try:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            warnings = list(rung_warnings(cluster, reader.paged("/api/v1/nodes")))
    except CommandError as refusal:
        warnings = [f"it is not known which drivers can limit memory: {refusal}"]
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)

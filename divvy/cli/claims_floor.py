"""Refuses claims on a Kubernetes that cannot serve them, before anything is changed."""

import typer

from divvy.cli.cluster_reader import reading
from divvy.cli.errors import fail
from divvy.model import Cluster
from divvy.model.claims_floor import floor_problems, floor_warnings


def check_floor(cluster: Cluster) -> None:
    """End with an error where a cluster is too old for its claims; warn of what is slow there."""
    if not any(profile.by_claims for profile in cluster.profiles.values()):
        return
    with reading(cluster.kubeconfig, cluster.context) as reader:
        answer = reader.one("/version") or {}
    version = str(answer.get("gitVersion", ""))
    for problem in floor_problems(cluster, version):
        fail(problem)
    for warning in floor_warnings(cluster, version):
        typer.echo(f"warning: {warning}", err=True)

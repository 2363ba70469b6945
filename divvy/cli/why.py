"""divvy why: why a pod waits for a GPU, which the scheduler does not say of claims."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from divvy.cli.cluster_reader import ClusterReader, reading
from divvy.cli.errors import fail
from divvy.cli.options import StackName
from divvy.cli.output import write
from divvy.model import Cluster
from divvy.plan.claim_requests import requests_of
from divvy.plan.live_claims import claimed_gpus
from divvy.plan.where import closed_to
from divvy.plan.why import Explanation, explain
from divvy.plan.why.pod import is_waiting, notes_of
from divvy.render.why import why_text
from divvy.stack.file import stack_path
from divvy.stack.revisions import read_side
from divvy.stack.sections import read_cluster

_RESOURCES = "/apis/resource.k8s.io/v1"


def why(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod's name.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The pod's namespace.")
    ] = "default",
    stack: StackName = None,
) -> None:
    """Say what a pod asks for, what is in the way on each GPU, and whom it waits for."""
    if stack is None:
        fail("name the stack whose cluster the pod is in: -s <stack>")
    cluster = read_cluster(read_side(str(stack_path(stack)), None))
    with reading(cluster.kubeconfig, cluster.context) as reader:
        write(why_text(_explanation(reader, cluster, namespace, pod)), None)


def _explanation(reader: ClusterReader, cluster: Cluster, namespace: str, name: str) -> Explanation:
    pod = reader.one(f"/api/v1/namespaces/{namespace}/pods/{name}")
    if pod is None:
        fail(f"there is no pod {name} in namespace {namespace}")
    if not is_waiting(pod):
        return Explanation(f"{namespace}/{name}", notes_of(pod, (), ()), ())
    claims = reader.listed(f"{_RESOURCES}/resourceclaims")
    slices = list(reader.paged(f"{_RESOURCES}/resourceslices"))
    own = [claim for claim in claims if _is_of(claim, pod)]
    # What the pod has been given already is not in its own way.
    gpus = claimed_gpus(slices, [claim for claim in claims if claim not in own])
    events = reader.listed(
        f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{name}"
    )
    nodes = list(reader.paged("/api/v1/nodes"))
    closed = {node["metadata"]["name"]: closed_to(pod, node) for node in nodes}
    return explain(
        f"{namespace}/{name}",
        requests_of(pod, own, cluster.names),
        gpus,
        notes_of(pod, own, events),
        {node: reason for node, reason in closed.items() if reason},
    )


def _is_of(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    meta = claim["metadata"]
    if meta["namespace"] != pod["metadata"]["namespace"]:
        return False
    owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
    named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims") or ()}
    return pod["metadata"]["uid"] in owners or meta["name"] in named

"""divvy why: why a pod waits for a GPU, by what `divvy fit` says of it alone."""

from typing import Annotated

import typer

from divvy.cli.options import StackName, named_stack
from divvy.cli.output import write
from divvy.errors import fail
from divvy.live.cluster_reader import reading
from divvy.live.fit_reader import FitReader
from divvy.live.pending_pods import is_unscheduled, notes_of
from divvy.plan.fit import PodsFit
from divvy.plan.fit import fit as put
from divvy.plan.fit.manifests import pod_of_cluster
from divvy.render.views.why import why_text
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_cluster


def why(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod's name.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="The pod's namespace.")
    ] = "default",
    stack: StackName = None,
) -> None:
    """Explain why a pod waits: what is in the way on each node, and which pods hold it."""
    stack = named_stack(stack, None)
    if not stack:
        fail("name the stack whose cluster the pod is in: -s <stack>")
    source = read_path(stack_path(stack))
    cluster = read_cluster(source)
    with reading(cluster.kubeconfig, cluster.context) as reader:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        waiting = reader.find(path)
        if waiting is None:
            fail(f"pod {pod} does not exist in namespace {namespace}")
        events = reader.listed(
            f"/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{pod}"
        )
        everything = FitReader(reader, cluster)
        own = everything.claims_of(waiting)
        result: PodsFit | None = None
        if is_unscheduled(waiting):
            # What the pod has been given already is not in its own way.
            nodes = everything.nodes(source.name, without=own)
            asking = pod_of_cluster(waiting, cluster, everything.around)
            quotas, unread = everything.quotas, everything.unread()
            (result,) = put(cluster, source.name, nodes, [asking], quotas, unread).pods
        write(why_text(f"{namespace}/{pod}", result, notes_of(waiting, own, events)), None)

"""The Pulumi program: one stack is one cluster."""

import pulumi

from components import GpuCluster
from divvy.model import InvalidCluster, parse_cluster
from divvy.plan import plan

value = pulumi.Config("divvy").require_object("cluster")
try:
    cluster = parse_cluster(value)
except InvalidCluster as problems:
    raise pulumi.RunError(str(problems)) from None

stack = pulumi.get_stack()
gpus = GpuCluster(stack, {"cluster": value, "parsed": cluster})

pulumi.export("image", gpus.image)
pulumi.export("offered", dict(plan(cluster, stack).totals))

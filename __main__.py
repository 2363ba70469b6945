"""The Pulumi program: one stack is one cluster."""

import pulumi

from components import GpuCluster
from divvy.model import InvalidCluster, parse_cluster

value = pulumi.Config("divvy").require_object("cluster")
try:
    cluster = parse_cluster(value)
except InvalidCluster as problems:
    raise pulumi.RunError(str(problems)) from None

gpus = GpuCluster(pulumi.get_stack(), {"cluster": value, "parsed": cluster})

pulumi.export("image", gpus.image)

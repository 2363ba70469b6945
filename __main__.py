"""The Pulumi program: one stack is one cluster."""

from pathlib import Path

import pulumi

from components import GpuCluster
from divvy.model import InvalidCluster

stack = pulumi.get_stack()
value = pulumi.Config("divvy").require_object("cluster")
try:
    gpus = GpuCluster(stack, {"cluster": value})
except InvalidCluster as invalid:
    from divvy.stack.sections import invalid_cluster

    project = Path(pulumi.get_root_directory())
    raise pulumi.RunError(str(invalid_cluster(project, stack, invalid))) from None

pulumi.export("image", gpus.image)
pulumi.export("advertised", gpus.advertised)

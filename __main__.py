"""The Pulumi program: one stack is one cluster."""

import pulumi

from divvy.components import cluster_of_stack

gpus = cluster_of_stack()
pulumi.export("image", gpus.image)
pulumi.export("advertised", gpus.advertised)

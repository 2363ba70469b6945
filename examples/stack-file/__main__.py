"""One cluster, as its stack file describes it."""

from divvy.components import cluster_of_stack

cluster_of_stack()

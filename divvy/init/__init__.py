"""From a cluster that is there to a stack file whose plan is what the cluster offers; pure."""

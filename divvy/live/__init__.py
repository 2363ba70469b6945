"""A running cluster: its nodes, pods, claims and agents, read and put together."""

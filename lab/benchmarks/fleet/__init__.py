"""Fleets of nodes: `python -m lab.benchmarks.fleet 100 1000 5000`.

A real API server, scheduler and controllers; nodes are objects, and each has the real agent's link
to the API (its two watches, its status and its labels) with a token of its own pod. What a kubelet
does about the agent is played: pods become ready, allocatable follows the status. Kubelets'
heartbeats are not.
"""

"""Prepare a node's container runtime for CDI: only if something is missing, never for worse.

A program of its own (``python -m divvy.agent.node_runtime``), run once per start
of its pod, opt-in per pool.
"""

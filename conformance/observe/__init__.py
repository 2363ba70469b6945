"""Observations of pods, nodes and agents: each file reads one thing."""

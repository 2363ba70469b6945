"""Deploys the chart with Helm: preview, up, destroy.

The state is the release in the cluster. ``records`` reads it, ``changes`` compares it and the live
objects with the stack file, ``helm`` runs the program, ``waiting`` says why something is not ready.
"""

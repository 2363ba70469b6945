"""Restarts, changes and faults on request, and their outcome.

Each function disturbs one node, with pods of ours on its devices, waits until the node
is as planned again, and says what it saw. Pods of others are not touched by any of them;
the profile is not changed while they hold devices.
"""

"""A random walk over a node: everything that can happen to it, in any order."""

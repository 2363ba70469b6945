"""Decisions about a node's GPUs: their layout, their owner, and their status."""

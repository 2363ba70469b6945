"""NVIDIA's GPU Operator, configured for the same topology where it can be."""

"""Checks of one host without Kubernetes: its driver, its GPUs, the workloads as processes."""

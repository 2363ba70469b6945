"""Quotas: what Kubernetes and Kueue count of GPUs."""

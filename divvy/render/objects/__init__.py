"""The Kubernetes objects of a cluster."""

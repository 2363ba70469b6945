"""A real Kubernetes with GPU nodes on one machine."""

"""The Kubernetes API, as every room reaches it."""

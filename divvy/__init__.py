"""GPU sharing as code for Kubernetes."""

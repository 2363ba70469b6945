"""Turns the model and the plan into Kubernetes objects and readable views."""

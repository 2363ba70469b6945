"""The Kubernetes API as the agent uses it: its Node, its ConfigMap, Events, evictions."""

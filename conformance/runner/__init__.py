"""The image that runs the suite in a cluster."""

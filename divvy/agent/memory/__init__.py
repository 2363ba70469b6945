"""The memory limit of shared devices: which container is above it, and what follows."""

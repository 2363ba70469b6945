"""What is decided about a node's GPUs: their layout, whose they are, and their status."""

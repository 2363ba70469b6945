"""What pods, nodes and agents show: each file reads one thing."""

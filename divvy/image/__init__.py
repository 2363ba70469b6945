"""The agent's image: what goes into it, how it is built and pushed, its Pulumi resource."""

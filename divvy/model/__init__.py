"""The pure heart: stack file types, GPU models, MIG placement, resolution."""

"""The driver of Dynamic Resource Allocation: slices, claims prepared and given back, health."""

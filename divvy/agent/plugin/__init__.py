"""The device plugin: what it lists, what it answers the kubelet, and who holds its devices."""

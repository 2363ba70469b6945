"""What the agent decides, as values: nothing here touches NVML, the kubelet, the API or a file."""

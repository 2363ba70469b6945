"""The kubelet's side: device plugin servers, their registration, who holds what."""

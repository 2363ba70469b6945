"""What the way to a cluster raises."""


class KubeconfigError(Exception):
    """A kubeconfig names no cluster or user that can be used; the text is one clear sentence."""

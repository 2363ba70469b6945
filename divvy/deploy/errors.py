"""How a deployment says that it cannot go on."""


class DeployError(Exception):
    """A deployment cannot go on; the text is one clear sentence for each reason."""

"""The step that prepares the container runtime of pools that ask for it."""

from components.objects import ObjectsComponent


class NodeRuntime(ObjectsComponent):
    """CDI in the nodes' container runtime.

    Creates:
    * ServiceAccount, role and binding for one lease
    * a DaemonSet for every pool with `runtime.configure`
    """

    token = "divvy:index:NodeRuntime"

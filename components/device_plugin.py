"""The agent and everything it needs in the cluster."""

from components.objects import ObjectsComponent


class DevicePlugin(ObjectsComponent):
    """The agent's deployment.

    Creates:
    * Namespace, ServiceAccount, roles and bindings
    * the admission policy that holds an agent to its own node
    * the ConfigMap with the stack's configuration
    * the DaemonSet and the Service for its metrics
    """

    token = "divvy:index:DevicePlugin"

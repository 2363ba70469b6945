"""Who has which address in the lab's network."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network


@dataclass(frozen=True)
class Addresses:
    """Divides a /16: machines in its first /24, pods in a quarter, services in the upper half."""

    network: IPv4Network

    @property
    def machines(self) -> IPv4Network:
        """Return the subnet of the bridge and the nodes."""
        return IPv4Network((self.network.network_address, 24))

    @property
    def host(self) -> IPv4Address:
        """Return this machine's address on the bridge; API server and registry listen there."""
        return self.network[1]

    @property
    def pods(self) -> IPv4Network:
        """Return the range of all pods."""
        return IPv4Network((self.network[64 * 256], 18))

    @property
    def services(self) -> IPv4Network:
        """Return the range of the Services."""
        return IPv4Network((self.network[128 * 256], 24))

    @property
    def kubernetes_service(self) -> IPv4Address:
        """Return the address of the Service `kubernetes`."""
        return self.services[1]

    def node(self, index: int) -> IPv4Address:
        """Return a node's own address."""
        return self.network[10 + index]

    def node_pods(self, index: int) -> IPv4Network:
        """Return the subnet of a node's pods."""
        return IPv4Network((self.network[(64 + index) * 256], 24))

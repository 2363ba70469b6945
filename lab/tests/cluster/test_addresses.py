"""The lab's address plan never gives one address twice."""

from ipaddress import IPv4Network

from lab.cluster.addresses import Addresses


def test_assigns_ranges_that_do_not_overlap() -> None:
    plan = Addresses(IPv4Network("10.9.0.0/16"))
    pods = [plan.node_pods(index) for index in range(64)]
    ranges = [plan.machines, plan.services, *pods]
    for number, network in enumerate(ranges):
        assert network.subnet_of(plan.network)
        assert not any(network.overlaps(other) for other in ranges[number + 1 :])
    assert all(pod.subnet_of(plan.pods) for pod in pods)
    assert not plan.pods.overlaps(plan.services)
    nodes = {plan.node(index) for index in range(64)}
    assert len(nodes) == 64
    assert plan.host not in nodes
    assert all(node in plan.machines for node in nodes)
    assert plan.kubernetes_service in plan.services

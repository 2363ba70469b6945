"""The lab's network: a bridge on this machine, one veth pair per node, static routes."""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.cluster.addresses import Addresses
from lab.cluster.description import Lab, Node
from lab.cluster.errors import NetworkFailed
from lab.cluster.paths import NAME

BRIDGE = f"divvy-{NAME}"
_BRIDGED_PACKETS = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
# The widest private range: wider routes lead to everything else, as the default route does.
_WIDEST = 8


def check_free(lab: Lab) -> None:
    """Raise if this machine already reaches something else by the lab's addresses."""
    for route in json.loads(_run(["ip", "-json", "-4", "route", "show", "table", "main"])):
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        destination = ipaddress.IPv4Network(route["dst"])
        if destination.prefixlen >= _WIDEST and destination.overlaps(lab.network):
            raise NetworkFailed(
                f"divvy:lab.network: {lab.network} overlaps {route['dst']}, which this machine "
                f"reaches by {route.get('dev', 'another route')}; choose another private /16"
            )


def ensure_bridge(lab: Lab) -> None:
    """Create the bridge with this machine's address and the routes to the nodes' pods."""
    addresses = Addresses(lab.network)
    if not _exists(BRIDGE):
        _run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    lines = [
        f"link set {BRIDGE} up",
        f"address replace {addresses.host}/{addresses.machines.prefixlen} dev {BRIDGE}",
    ]
    _run(["ip", "-batch", "-"], "\n".join(lines))
    _run(["ip", "-batch", "-"], "\n".join(_pod_routes(lab, BRIDGE)))


def firewall_note(switch: Path = _BRIDGED_PACKETS) -> str | None:
    """Return what lets nodes reach each other if this machine forwards nothing, None if it does.

    Docker leaves machines so, and its module has packets on every bridge pass the firewall.
    """
    if not switch.is_file() or switch.read_text().strip() == "0" or not shutil.which("iptables"):
        return None
    try:
        rules = _run(["iptables", "-S", "FORWARD"]).splitlines()
    except NetworkFailed:
        return None  # a kernel without it drops nothing by it
    own = f"FORWARD -i {BRIDGE} -o {BRIDGE} -j ACCEPT"
    if "-P FORWARD DROP" not in rules or f"-A {own}" in rules:
        return None
    return f"this machine's firewall drops what nodes send each other: iptables -I {own}"


def past_proxies(lab: Lab) -> dict[str, str]:
    """Return this process's environment, in which no proxy is on the way to the lab."""
    host = str(Addresses(lab.network).host)
    upper, lower = os.environ.get("NO_PROXY"), os.environ.get("no_proxy")
    return {
        **os.environ,
        "NO_PROXY": _with_host(upper or lower, host),
        "no_proxy": _with_host(lower or upper, host),
    }


def _with_host(hosts: str | None, host: str) -> str:
    # Some programs take a star for everything only where it stands alone.
    return "*" if hosts == "*" else ",".join(filter(None, (hosts, host)))


def connect_node(lab: Lab, node: Node, pid: int) -> None:
    """Give the node, whose first process is pid, its eth0 with address and routes."""
    addresses = Addresses(lab.network)
    link = _link(node)
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip"]
    if not _exists("eth0", inside):
        # The link of the node's former life may outlast it for a moment.
        _remove(link)
        _run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
    _run(["ip", "link", "set", link, "master", BRIDGE, "up"])
    lines = [
        "link set lo up",
        "link set eth0 up",
        f"address replace {addresses.node(node.index)}/{addresses.machines.prefixlen} dev eth0",
        f"route replace default via {addresses.host}",
        *_pod_routes(lab, "eth0", leave_out=node),
    ]
    _run([*inside, "-batch", "-"], "\n".join(lines))


def remove_network() -> None:
    """Remove the bridge and what is attached to it."""
    if not _exists(BRIDGE):
        return
    listed = _run(["ip", "-oneline", "link", "show", "master", BRIDGE])
    for line in listed.splitlines():
        name = line.split(": ")[1].partition("@")[0]
        _remove(name)
    _run(["ip", "link", "del", BRIDGE])


def _link(node: Node) -> str:
    return f"{BRIDGE}-{node.index}"


def _pod_routes(lab: Lab, device: str, leave_out: Node | None = None) -> list[str]:
    addresses = Addresses(lab.network)
    return [
        f"route replace {addresses.node_pods(n.index)} via {addresses.node(n.index)} dev {device}"
        for n in lab.nodes
        if n != leave_out
    ]


def _exists(name: str, ip: Sequence[str] = ("ip",)) -> bool:
    done = subprocess.run([*ip, "link", "show", name], check=False, capture_output=True)
    return done.returncode == 0


def _remove(name: str) -> None:
    # The kernel may be quicker: links go with the network namespace that held one end.
    subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}".strip())
    return done.stdout

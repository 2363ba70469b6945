"""What of this machine's network keeps a lab from its own, told before or beside it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import network
from lab.cluster.errors import NetworkFailed
from lab.cluster.paths import REPOSITORY
from lab.cluster.section import parse_lab

LAB = parse_lab({"nodes": [{"name": "n"}]})


def _route(monkeypatch: pytest.MonkeyPatch, *routes: dict[str, Any]) -> None:
    monkeypatch.setattr(network, "_run", lambda _command: json.dumps(routes))


@pytest.mark.parametrize("destination", ["default", "0.0.0.0/1", "128.0.0.0/2", "10.124.0.0/16"])
def test_starts_beside_routes_that_lead_elsewhere(
    destination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A VPN has a route for each half of the Internet instead of another default.
    _route(monkeypatch, {"dst": destination, "dev": "tun0"})
    network.check_free(LAB)


@pytest.mark.parametrize("destination", ["10.0.0.0/8", "10.123.4.0/24", "10.123.4.5"])
def test_refuses_a_network_that_leads_elsewhere(
    destination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _route(monkeypatch, {"dst": destination, "dev": "tun0"})
    with pytest.raises(NetworkFailed, match=f"overlaps {destination}, which this machine reaches"):
        network.check_free(LAB)


@pytest.mark.parametrize(
    ("bridged", "rules", "noted"),
    [
        ("1", "-P FORWARD DROP", True),
        ("0", "-P FORWARD DROP", False),
        ("1", "-P FORWARD ACCEPT", False),
        ("1", "-P FORWARD DROP\n-A FORWARD -i {0} -o {0} -j ACCEPT", False),
    ],
)
def test_says_how_nodes_reach_each_other_past_a_firewall(
    bridged: str, rules: str, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Docker leaves it.
    switch, iptables = tmp_path / "bridge-nf-call-iptables", tmp_path / "iptables"
    switch.write_text(f"{bridged}\n")
    iptables.write_text(f"#!/bin/sh\ncat <<'EOF'\n{rules.format(network.BRIDGE)}\nEOF\n")
    iptables.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    expected = (
        "this machine's firewall drops what nodes send each other: "
        f"iptables -I FORWARD -i {network.BRIDGE} -o {network.BRIDGE} -j ACCEPT"
    )
    assert network.firewall_note(switch) == (expected if noted else None)


def test_has_no_note_where_iptables_cannot_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, iptables = tmp_path / "bridge-nf-call-iptables", tmp_path / "iptables"
    switch.write_text("1\n")
    iptables.write_text("#!/bin/sh\necho -P FORWARD DROP\nexit 4\n")
    iptables.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert network.firewall_note(switch) is None


def test_has_no_note_where_bridges_pass_the_firewall(tmp_path: Path) -> None:
    assert network.firewall_note(tmp_path / "no-such-module") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, ("10.123.0.1", "10.123.0.1")),
        ({"no_proxy": "a, .b"}, ("a, .b,10.123.0.1", "a, .b,10.123.0.1")),
        # Programs differ in which of the two they read.
        ({"NO_PROXY": "a", "no_proxy": ".b"}, ("a,10.123.0.1", ".b,10.123.0.1")),
        # Some take a star for everything only where it stands alone.
        ({"NO_PROXY": "*"}, ("*", "*")),
    ],
)
def test_reaches_the_lab_past_a_proxy(
    before: dict[str, str], after: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("NO_PROXY", "no_proxy")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, hosts in before.items():
        monkeypatch.setenv(name, hosts)
    direct = network.past_proxies(LAB)
    assert tuple(direct[name] for name in names) == after
    show = '--eval=show: ; @echo "$$NO_PROXY"; echo "$$no_proxy"'
    of_the_demo = subprocess.run(
        ["make", "--no-print-directory", show, "show"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert tuple(of_the_demo.stdout.splitlines()) == after

"""Up, repair, restart, kill, crash, down: and nothing is left."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lab.tests.cluster.conftest import SmallLab

pytestmark = pytest.mark.lab


def _traces() -> dict[str, set[str]]:
    """Return what a lab named test could leave on this machine."""
    marked = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (process / "environ").read_bytes()
            if b"/var/lib/divvy-test" in environment or "/var/lib/divvy-test" in command:
                marked.add(f"{process.name} {command}")
    links = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True)
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True)
    return {
        "processes": marked,
        "mounts": _mentioning(Path("/proc/self/mountinfo").read_text()),
        "links": _mentioning(links.stdout),
        "routes": {line for line in routes.stdout.splitlines() if line.startswith("10.126.")},
        # Not deeper: the groups of another lab's pods come and go meanwhile.
        "cgroups": {
            str(path)
            # Those of other tests are divvy-test-<number>.
            for pattern in ("divvy-test", "*/divvy-test")
            for path in Path("/sys/fs/cgroup").glob(pattern)
        },
        "namespaces": {str(path) for path in Path("/run").glob("netns/*")},
        "files": {str(path) for path in Path("/var/lib").glob("divvy-test*")}
        | {str(path) for path in Path("/run").glob("divvy-test*")},
    }


def _mentioning(text: str) -> set[str]:
    return {line for line in text.splitlines() if "divvy-test" in line}


def _processes(small_lab: SmallLab) -> dict[str, int]:
    """Return the processes of the control plane by name."""
    process_ids = {}
    for line in small_lab.divvy("status").stdout.splitlines():
        name, _, rest = line.partition(" ")
        if "runs, process" in rest:
            process_ids[name] = int(rest.rsplit(maxsplit=1)[1])
    return process_ids


def _container(small_lab: SmallLab, pod: str) -> tuple[str, str, int]:
    status = json.loads(small_lab.kubectl("get", "pod", pod, "--output=json"))["status"]
    container = status["containerStatuses"][0]
    running = container["state"]["running"]["startedAt"]
    return container["containerID"], running, container["restartCount"]


def test_leaves_nothing_of_a_used_lab_after_down(small_lab: SmallLab) -> None:
    before = _traces()
    assert not any(before[kind] for kind in ("processes", "mounts", "links", "cgroups", "files"))
    small_lab.up()
    small_lab.pod_on("gpu-1", "stays")
    during = _traces()
    for kind in ("processes", "links", "routes", "cgroups", "files"):
        assert during[kind] > before[kind], kind
    # Nodes mount in namespaces of their own, so this machine's list never grows.
    assert during["mounts"] == before["mounts"]
    assert small_lab.divvy("down").returncode == 0
    assert _traces() == before


def _kill_up(small_lab: SmallLab, after: float) -> None:
    """Kill an up so many seconds after it has begun to leave traces."""
    before = _traces()
    with subprocess.Popen(
        small_lab.command("up"), env=small_lab.environment, stdout=subprocess.DEVNULL
    ) as starting:
        while _traces() == before:
            assert starting.poll() is None
        time.sleep(after)
        starting.kill()
    assert _traces() != before


@pytest.mark.parametrize("after", [0, 0.2, 0.5, 1.5, 3.0])
def test_leaves_nothing_after_down_when_up_was_killed(small_lab: SmallLab, after: float) -> None:
    before = _traces()
    _kill_up(small_lab, after)
    assert small_lab.divvy("down").returncode == 0
    assert _traces() == before


@pytest.mark.parametrize("after", [0.05, 0.3, 1.5])
def test_resumes_up_where_a_killed_up_stopped(small_lab: SmallLab, after: float) -> None:
    _kill_up(small_lab, after)
    small_lab.up()
    assert small_lab.divvy("status").returncode == 0


def test_repairs_only_what_is_broken_in_a_second_up(small_lab: SmallLab) -> None:
    small_lab.up()
    assert small_lab.divvy("status").returncode == 0
    first = _processes(small_lab)
    small_lab.up()
    assert _processes(small_lab) == first
    for component in ("kube-scheduler", "kube-apiserver", "registry", "etcd"):
        os.kill(first[component], signal.SIGKILL)
        status = small_lab.divvy("status")
        assert status.returncode == 1
        assert f"{component:<26} does not run" in status.stdout
        small_lab.up()
        now = _processes(small_lab)
        changed = {name for name in first if now[name] != first[name]}
        # Controllers that cannot reach the API server end themselves, so up may start them too.
        controllers = {"kube-controller-manager", "kube-scheduler"}
        assert component in changed
        assert changed <= {component} | (controllers if component != "kube-scheduler" else set())
        first = now
    subprocess.run(["ip", "link", "del", "divvy-test-0"], check=True)
    small_lab.up()
    small_lab.pod_on("gpu-1", "after")


@pytest.mark.parametrize(("node", "version", "cdi"), [("gpu-1", 2, "false"), ("cpu-1", 4, "true")])
def test_starts_container_runtimes_as_described(
    small_lab: SmallLab, node: str, version: int, cdi: str
) -> None:
    small_lab.up()
    first = small_lab.divvy("exec", node, "--", "head", "-1", "/etc/containerd/config.toml")
    assert first.stdout == f"version = {version}\n"
    dump = small_lab.divvy("exec", node, "--", "containerd", "config", "dump")
    assert f"enable_cdi = {cdi}\n" in dump.stdout


def test_keeps_pods_running_when_components_restart(small_lab: SmallLab) -> None:
    small_lab.up()
    small_lab.pod_on("gpu-1", "stays")
    before = _container(small_lab, "stays")
    for component in ("kubelet", "containerd", "kube-proxy"):
        done = small_lab.divvy("restart", "gpu-1", component)
        assert done.stdout == f"{component} of gpu-1 restarted\n"
        small_lab.up()
        assert f"{component} runs (restarted 1×" in small_lab.divvy("status").stdout
    # Only a kubelet that has found its pods again lets a command in.
    small_lab.kubectl("exec", "stays", "--", "true")
    assert _container(small_lab, "stays") == before


def test_restarts_what_has_crashed(small_lab: SmallLab) -> None:
    small_lab.up()
    for component in ("kubelet", "containerd"):
        killed = small_lab.divvy("exec", "cpu-1", "--", "pkill", "-KILL", "-x", component)
        assert killed.returncode == 0
        deadline = time.monotonic() + 30
        while f"{component} runs (restarted 1×, signal 9)" not in small_lab.divvy("status").stdout:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_restarts_a_killed_node(small_lab: SmallLab) -> None:
    small_lab.up()
    small_lab.pod_on("gpu-1", "stays")
    container, _, restarts = _container(small_lab, "stays")
    assert small_lab.divvy("kill", "gpu-1").returncode == 0
    status = small_lab.divvy("status")
    assert f"{'node gpu-1':<26} does not run" in status.stdout
    assert status.returncode == 1
    assert small_lab.divvy("exec", "gpu-1", "--", "true").stderr == (
        "error: node gpu-1 does not run\n"
    )
    small_lab.up()
    deadline = time.monotonic() + 60
    while _restarts(small_lab, "stays") == restarts:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    small_lab.kubectl("wait", "--for=condition=Ready", "pod/stays", "--timeout=60s")
    again, _, count = _container(small_lab, "stays")
    assert again != container
    assert count == restarts + 1


def _restarts(small_lab: SmallLab, pod: str) -> int:
    path = "--output=jsonpath={.status.containerStatuses[0].restartCount}"
    return int(small_lab.kubectl("get", "pod", pod, path))


def test_keeps_the_disk_but_not_the_run_of_a_restarted_node(small_lab: SmallLab) -> None:
    small_lab.up()
    write = "echo kept > /etc/kept; echo lost > /run/lost"
    assert small_lab.divvy("exec", "cpu-1", "--", "sh", "-c", write).returncode == 0
    restarted = small_lab.divvy("restart", "cpu-1")
    assert restarted.stdout == "node cpu-1 is Ready\n"
    read = small_lab.divvy("exec", "cpu-1", "--", "cat", "/etc/kept", "/run/lost")
    assert read.stdout == "kept\n"
    assert "/run/lost" in read.stderr


def test_prints_the_logs_of_the_node_or_component(small_lab: SmallLab) -> None:
    small_lab.up()
    assert "Starting to listen" in small_lab.divvy("logs", "cpu-1", "kubelet", "-n", "1000").stdout
    every = small_lab.divvy("logs", "cpu-1").stdout
    assert all(f"/{name}.log <==" in every for name in ("containerd", "kubelet", "kube-proxy"))
    assert "kube-scheduler" not in every
    assert "Starting Kubernetes Scheduler" in small_lab.divvy("logs", "kube-scheduler").stdout
    unknown = small_lab.divvy("logs", "gpu-9")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error: gpu-9 has no logs; available:")


def test_refuses_another_description_while_the_lab_is_up(small_lab: SmallLab) -> None:
    small_lab.up()
    text = small_lab.description.read_text()
    small_lab.description.write_text(text.replace("1s", "2s"))
    refused = small_lab.divvy("up")
    assert refused.returncode == 1
    assert refused.stderr == (
        "error: the lab that is up has other node_status_update_frequency than the "
        "description: run divvy lab down first\n"
    )
    assert small_lab.divvy("status").returncode == 0


def test_names_a_port_in_use_before_it_starts_anything(small_lab: SmallLab) -> None:
    before = _traces()
    with socket.socket() as listener:
        # Connections of an earlier lab may linger in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", 16443))
        listener.listen()
        refused = small_lab.divvy("up")
    assert refused.returncode == 1
    assert refused.stderr == (
        "error: divvy:lab.ports.apiServer: another program uses port 16443; choose a free one\n"
    )
    assert _traces() == before


def test_names_a_network_in_use_before_it_starts_anything(small_lab: SmallLab) -> None:
    before = _traces()
    subprocess.run(["ip", "route", "add", "blackhole", "10.126.7.0/24"], check=True)
    try:
        refused = small_lab.divvy("up")
    finally:
        subprocess.run(["ip", "route", "del", "blackhole", "10.126.7.0/24"], check=True)
    assert refused.returncode == 1
    assert "10.126.0.0/16 overlaps 10.126.7.0/24" in refused.stderr
    assert _traces() == before


def test_says_in_every_command_that_there_is_no_lab(small_lab: SmallLab) -> None:
    for command in (["status"], ["kubeconfig"], ["logs", "etcd"], ["kill", "cpu-1"]):
        done = small_lab.divvy(*command)
        assert done.returncode == 1
        assert done.stderr == (
            "error: no lab test (DIVVY_LAB) is up on this machine: divvy lab up starts one\n"
        )
    assert "no lab was up" in small_lab.divvy("down").stdout

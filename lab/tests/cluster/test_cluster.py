"""The lab is a real cluster: nodes, pods, Services, logs, exec, identities, admission."""

import base64
import http.client
import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.addresses import Addresses
from lab.cluster.description import DEFAULT_CONTAINERD
from lab.cluster.identities import node_identity, server
from lab.cluster.paths import PKI
from lab.cluster.tools import CONTAINERD_VERSIONS, KUBERNETES, KUBERNETES_VERSIONS
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab

SERVE = "hostname > /tmp/index.html; echo serving; exec httpd -f -p 8080 -h /tmp"


@pytest.fixture(scope="module")
def everywhere(lab: RunningLab) -> Iterator[tuple[str, dict[str, str]]]:
    """Give a namespace with one privileged hostPID pod per node: node → pod."""
    with lab.namespace() as namespace:
        pod = lab.pod(
            "web", SERVE, hostPID=True, container={"securityContext": {"privileged": True}}
        )
        del pod["spec"]["restartPolicy"]
        selector = {"app": "web"}
        metadata = {"name": "web", "namespace": namespace}
        lab.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": metadata,
                "spec": {
                    "selector": {"matchLabels": selector},
                    "template": {"metadata": {"labels": selector}, "spec": pod["spec"]},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
            },
        )
        lab.kubectl("rollout", "status", "daemonset/web", f"-n={namespace}", "--timeout=60s")
        pods = lab.get("pods", f"-n={namespace}")["items"]
        yield namespace, {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods}


def test_creates_nodes_as_described(lab: RunningLab) -> None:
    nodes = {node["metadata"]["name"]: node for node in lab.get("nodes")["items"]}
    assert sorted(nodes) == sorted(node.name for node in lab.description.nodes)
    for described in lab.description.nodes:
        node = nodes[described.name]
        assert described.labels.items() <= node["metadata"]["labels"].items()
        info = node["status"]["nodeInfo"]
        assert info["kubeletVersion"] == KUBERNETES_VERSIONS[lab.description.kubernetes]
        assert (
            info["containerRuntimeVersion"]
            == f"containerd://{CONTAINERD_VERSIONS[DEFAULT_CONTAINERD][1:]}"
        )
        addresses = {address["type"]: address["address"] for address in node["status"]["addresses"]}
        assert addresses == {
            "InternalIP": str(Addresses(lab.description.network).node(described.index)),
            "Hostname": described.name,
        }


def test_shows_every_pod_its_own_node_alone(
    lab: RunningLab, everywhere: tuple[str, dict[str, str]]
) -> None:
    namespace, pods = everywhere
    assert sorted(pods) == [
        node.name for node in sorted(lab.description.nodes, key=lambda n: n.name)
    ]
    for node, pod in pods.items():
        listed = lab.kubectl("exec", pod, f"-n={namespace}", "--", "ps", "-o", "args")
        kubelets = [line for line in listed.splitlines() if "/kubelet --config" in line]
        assert len(kubelets) == 1
        assert f"--hostname-override={node}" in kubelets[0]
        entered = ["nsenter", "-t", "1", "-m", "-u", "-n", "cat", "/etc/hostname"]
        assert lab.kubectl("exec", pod, f"-n={namespace}", "--", *entered).strip() == node


def test_creates_what_a_drivers_kernel_module_would_on_a_node(lab: RunningLab) -> None:
    def show(path: str) -> str:
        command = lab.machine("gpu-a100").enter_command(["cat", path])
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "550.163.01" in show("/proc/driver/nvidia/version")
    devices = show("/proc/devices")
    assert " nvidia-caps\n" in devices
    assert "\nBlock devices:\n" in devices
    if Path("/sys/bus/pci/devices").is_dir():
        assert show("/sys/bus/pci/devices/0000:07:00.0/vendor") == "0x10de\n"


def test_serves_logs_exec_and_port_forward(
    lab: RunningLab, everywhere: tuple[str, dict[str, str]]
) -> None:
    namespace, pods = everywhere
    for pod in pods.values():
        assert lab.kubectl("logs", pod, f"-n={namespace}") == "serving\n"
        assert lab.kubectl("exec", pod, f"-n={namespace}", "--", "hostname").strip() == pod
    pod = pods["gpu-h100"]
    command = [
        KUBERNETES.bin / "kubectl",
        f"--kubeconfig={lab.kubeconfig}",
        *("port-forward", f"--namespace={namespace}", pod, ":8080"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout
        address = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
        assert address
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/", timeout=10) as answer:
            assert answer.read().decode().strip() == pod
        forward.terminate()


def test_connects_every_pod_to_every_pod_by_address_and_service(
    lab: RunningLab, everywhere: tuple[str, dict[str, str]]
) -> None:
    namespace, pods = everywhere
    listed = lab.get("pods", f"-n={namespace}")["items"]
    directly = " ".join(f"{pod['status']['podIP']}:8080" for pod in listed)
    for pod in pods.values():
        script = f"for a in {directly}; do timeout 5 wget -qO- http://$a/; done"
        answers = lab.kubectl("exec", pod, f"-n={namespace}", "--", "sh", "-c", script)
        assert sorted(answers.split()) == sorted(pods.values())
        # A hundred draws of six: that one is never drawn happens once in 80 million.
        script = "for i in $(seq 100); do timeout 5 wget -qO- http://$WEB_SERVICE_HOST/; done"
        answers = lab.kubectl("exec", pod, f"-n={namespace}", "--", "sh", "-c", script)
        assert set(answers.split()) <= set(pods.values())
        assert len(answers.split()) == 100
        assert pod in answers.split()


def test_keeps_what_is_written_on_a_node_there(lab: RunningLab) -> None:
    def on(node: str, script: str) -> str:
        command = lab.machine(node).enter_command(["sh", "-c", script])
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert on("gpu-t4", "echo mine > /etc/divvy-test; touch /opt/divvy-test; hostname") == "gpu-t4"
    assert on("gpu-t4", "cat /etc/divvy-test") == "mine"
    assert on("gpu-h100", "cat /etc/divvy-test /opt/divvy-test 2>&1 | grep -c 'No such'") == "2"
    assert not Path("/etc/divvy-test").exists()
    assert not Path("/opt/divvy-test").exists()
    # Neither the lab's keys nor other nodes are to be found on a node.
    assert on("gpu-t4", f"find {PKI.parent} -mindepth 1") == ""
    on("gpu-t4", "rm /etc/divvy-test /opt/divvy-test")


def test_runs_exactly_the_digest_that_a_pod_requests(
    lab: RunningLab, everywhere: tuple[str, dict[str, str]]
) -> None:
    namespace, _ = everywhere
    for pod in lab.get("pods", f"-n={namespace}")["items"]:
        assert pod["status"]["containerStatuses"][0]["imageID"] == lab.busybox


def _as_node(lab: RunningLab, node: str, *arguments: str, stdin: str | None = None) -> str:
    kubeconfig = "/etc/kubernetes/kubelet.conf"
    kubectl = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={kubeconfig}", *arguments]
    command = lab.machine(node).enter_command(kubectl)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def _patch_as_node(node: str, url: str, path: str) -> tuple[int, str]:
    identity = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
    name = node_identity(node)
    identity.load_cert_chain(PKI / f"{name}.crt", PKI / f"{name}.key")
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=identity)
    body = json.dumps({"metadata": {"annotations": {"divvy.test/x": "1"}}})
    headers = {"Content-Type": "application/merge-patch+json"}
    connection.request("PATCH", path, body, headers)
    answer = connection.getresponse()
    message = str(json.loads(answer.read())["message"])
    connection.close()
    return answer.status, message


def test_gives_every_kubelet_its_own_identity_and_no_more(lab: RunningLab) -> None:
    for node in lab.description.nodes:
        assert f"system:node:{node.name}" in _as_node(lab, node.name, "auth", "whoami")
    own = _as_node(lab, "gpu-t4", "annotate", "--overwrite", "node", "gpu-t4", "divvy.test/x=1")
    assert "annotated" in own
    # kubectl would read the node first, which is refused already; so ask for the change alone.
    other = _patch_as_node("gpu-t4", server(lab.description), "/api/v1/nodes/cpu-1")
    message = 'nodes "cpu-1" is forbidden: node "gpu-t4" is not allowed to modify node "cpu-1"'
    assert other == (403, message)
    assert "Forbidden" in _as_node(lab, "gpu-t4", "get", "secrets", "--all-namespaces")
    lab.kubectl("annotate", "node", "gpu-t4", "divvy.test/x-")


def test_refuses_anonymous_requests_to_kubelets(lab: RunningLab) -> None:
    address = Addresses(lab.description.network).node(0)
    trusted = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
    connection = http.client.HTTPSConnection(str(address), 10250, context=trusted, timeout=10)
    connection.request("GET", "/pods")
    assert connection.getresponse().status == 401
    connection.close()


def test_binds_service_account_tokens_to_pod_and_node(
    lab: RunningLab, everywhere: tuple[str, dict[str, str]]
) -> None:
    namespace, pods = everywhere
    path = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    token = lab.kubectl("exec", pods["gpu-a100"], f"-n={namespace}", "--", "cat", path)
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["kubernetes.io"]["node"]["name"] == "gpu-a100"
    assert claims["kubernetes.io"]["pod"]["name"] == pods["gpu-a100"]


def test_refuses_a_privileged_pod_by_pod_security(lab: RunningLab) -> None:
    with lab.namespace({"pod-security.kubernetes.io/enforce": "restricted"}) as namespace:
        pod = lab.pod("bad", "true", container={"securityContext": {"privileged": True}})
        refused = lab.try_kubectl("apply", "-f-", f"-n={namespace}", stdin=json.dumps(pod))
        assert refused.returncode != 0
        assert 'violates PodSecurity "restricted' in refused.stderr


def test_enforces_validating_admission_policies(lab: RunningLab) -> None:
    name = "divvy-test-no-such-configmaps"
    group = "admissionregistration.k8s.io/v1"
    with lab.namespace() as namespace:
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
        own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        policy: dict[str, Any] = {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": own},
                "validations": [{"expression": "false", "message": "none here"}],
            },
        }
        binding = {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }
        lab.apply(policy, binding)
        try:
            create = ["create", "configmap", "x", f"-n={namespace}", "--dry-run=server"]
            lab.until(lambda: "none here" in lab.try_kubectl(*create).stderr, patience=20)
        finally:
            lab.kubectl("delete", "validatingadmissionpolicybinding", name)
            lab.kubectl("delete", "validatingadmissionpolicy", name)


def test_runs_a_loaded_image(lab: RunningLab, tmp_path: Path) -> None:
    archive = tmp_path / "greeting.tar"
    oci = tmp_path / "layout"
    source = f"docker://{lab.busybox}"
    skopeo = ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false"]
    subprocess.run([*skopeo, source, f"docker-archive:{archive}:greeting:1"], check=True)
    subprocess.run([*skopeo, source, f"oci:{oci}:1"], check=True)
    with lab.namespace() as namespace:
        for number, image in enumerate((archive, oci)):
            done = subprocess.run(
                [".venv/bin/divvy", "lab", "load", str(image)],
                capture_output=True,
                text=True,
                check=True,
            )
            reference = done.stdout.strip()
            assert re.fullmatch(r"[\d.:]+/[a-z]+@sha256:[0-9a-f]{64}", reference)
            name = f"loaded-{number}"
            pod = lab.pod(name, "echo loaded", container={"image": reference})
            lab.kubectl("apply", "-f-", f"-n={namespace}", stdin=json.dumps(pod))
            done_pod = ["--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}"]
            lab.kubectl("wait", *done_pod, f"-n={namespace}", "--timeout=30s")
            assert lab.kubectl("logs", name, f"-n={namespace}") == "loaded\n"

"""Credential plugins of kubeconfigs: programs that print a token, and may ask their user first."""

from __future__ import annotations

import base64
import codecs
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divvy.kube.errors import KubeconfigError
from divvy.kube.kubeconfig import ClusterConfig

# Of what a credential plugin has said, in the error if it fails.
_LAST_LINES, _LAST_CHARACTERS = 5, 4000
# Its stderr ends with the plugin, unless a program that it leaves behind, as a browser, keeps it.
_LAST_WORDS_SECONDS = 1.0
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def plugin_token(config: ClusterConfig) -> str:
    """Ask the user's credential plugin for a token; raises KubeconfigError."""
    plugin = config.user["exec"]
    command = str(plugin.get("command"))
    try:
        cluster_info = (
            {"cluster": _cluster_info(config)} if plugin.get("provideClusterInfo") else {}
        )
        given = {
            "apiVersion": plugin.get("apiVersion"),
            "kind": "ExecCredential",
            "spec": {"interactive": False, **cluster_info},
        }
        more = {entry["name"]: entry.get("value", "") for entry in plugin.get("env") or ()}
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(given), **more}
        done = _run_plugin([command, *(plugin.get("args") or ())], environment)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} is malformed: {error}"
        ) from None
    except OSError as error:
        hint = f" ({plugin['installHint']})" if plugin.get("installHint") else ""
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} does not run: {error.strerror}{hint}"
        ) from None
    if done.returncode:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} failed: {done.stderr.strip()}"
        )
    try:
        token = json.loads(done.stdout)["status"].get("token")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} printed no credential"
        ) from None
    if not token:
        raise KubeconfigError(
            f"kubeconfig: the credential plugin {command} gives no token; client "
            "certificates from plugins are not supported"
        )
    return str(token)


def _cluster_info(config: ClusterConfig) -> dict[str, Any]:
    """Return what a plugin is told of the cluster where it asks for it."""
    path, data = (config.cluster.get(f"certificate-authority{end}") for end in ("", "-data"))
    if path and not data:
        data = base64.b64encode(Path(path).read_bytes()).decode()
    named = {entry["name"]: entry for entry in config.cluster.get("extensions") or ()}
    cluster = {
        "server": config.server,
        "insecure-skip-tls-verify": config.cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": data and "".join(data.split()),
        "config": named.get(_EXEC_EXTENSION, {}).get("extension"),
    }
    return {key: value for key, value in cluster.items() if value}


def _run_plugin(
    command: list[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a plugin; what it says on stderr, such as a page to open, is shown at once."""
    ending = [""]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        # A program that it leaves behind may write there long after the plugin's end.
        stderr = os.dup(running.stderr.fileno())
        showing = threading.Thread(target=_show, args=(stderr, ending), daemon=True)
        showing.start()
        try:
            printed = running.stdout.read()
            running.wait()
        except BaseException:  # a Ctrl-C, while the plugin waits for its user
            running.kill()
            raise
        showing.join(_LAST_WORDS_SECONDS)
    last_lines = "\n".join(ending[0].splitlines()[-_LAST_LINES:])
    return subprocess.CompletedProcess(command, running.returncode, printed, last_lines)


def _show(stderr: int, ending: list[str]) -> None:
    """Show what comes as it comes, as a prompt has no line end; ``ending`` is the last of it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with open(stderr, "rb", buffering=0) as stream:
        while part := stream.read(4096):
            text = decoder.decode(part)
            ending[0] = (ending[0] + text)[-_LAST_CHARACTERS:]
            # The plugin goes on though what it says cannot be shown: stderr may be closed or none.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(text)
                sys.stderr.flush()

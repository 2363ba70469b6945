"""Helm, the program that deploys: found, checked, and run against one cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from divvy.deploy.changes import Release

_MAJOR = 4
# They name another cluster, namespace or storage than the stack file and its kubeconfig.
_LEADS_ELSEWHERE = re.compile(r"HELM_(KUBE|NAMESPACE|DRIVER)")
_REMEDY = (
    "install Helm 4 (https://helm.sh/docs/intro/install), or deploy the chart that "
    "`divvy chart` writes, or the Pulumi program with `pulumi up`"
)


class HelmFailed(Exception):
    """Helm is missing, too old, or ended with an error; the text is one clear sentence."""


@dataclass(frozen=True)
class Helm:
    """Helm against the cluster of a kubeconfig; without one it finds the cluster as kubectl does.

    ``path`` is the program's.
    """

    path: str
    kubeconfig: str | None
    context: str | None

    def upgrade(
        self,
        release: Release,
        chart: Path,
        description: str,
        *,
        force_conflicts: bool,
        take_ownership: bool,
    ) -> None:
        """Install or upgrade a release to a chart's own values; raises HelmFailed.

        Nothing waits for pods here: Helm does not say why one is not ready.
        """
        flags = ["--install", "--reset-values", "--hide-notes", "--server-side=true"]
        flags += ["--force-conflicts"] if force_conflicts else []
        flags += ["--take-ownership"] if take_ownership else []
        self._run("upgrade", release.name, str(chart), *self._on(release), *flags,
                  "--description", description)  # fmt: skip

    def uninstall(self, release: Release) -> None:
        """Delete a release's objects; raises HelmFailed.

        To wait until they are gone, Helm would have to watch every kind of them.
        """
        self._run("uninstall", release.name, *self._on(release), "--ignore-not-found")

    def _on(self, release: Release) -> list[str]:
        flags = ["--namespace", release.namespace]
        flags += ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        return flags + (["--kube-context", self.context] if self.context else [])

    def _run(self, *arguments: str) -> None:
        done = _run(self.path, *arguments)
        if done.returncode:
            raise HelmFailed(f"helm {arguments[0]} failed: {_last_words(done)}")


def find_helm(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> Helm:
    """Return the Helm on PATH; raises HelmFailed if there is none, or one of another version."""
    path = shutil.which("helm", path=environment.get("PATH"))
    if path is None:
        raise HelmFailed(f"helm is not on PATH: {_REMEDY}")
    done = _run(path, "version", "--short")
    version = re.match(r"v?(\d+)\.", done.stdout)
    if done.returncode or version is None:
        raise HelmFailed(f"{path} does not say its version: {_last_words(done)}")
    if int(version[1]) != _MAJOR:
        raise HelmFailed(f"{path} is Helm {done.stdout.strip()}: {_REMEDY}")
    expanded = None if kubeconfig is None else str(Path(kubeconfig).expanduser())
    return Helm(path, expanded, context)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not _LEADS_ELSEWHERE.match(key)}
    return subprocess.run(
        command,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    errors = [line for line in lines if line.startswith("Error:")]
    return " / ".join(errors or lines[-2:]).removeprefix("Error: ")

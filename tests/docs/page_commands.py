"""The commands of the pages for users, in their order, and where each of them runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from divvy.version_info import requirement
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import HELM, KUBERNETES

PAGES = ("first-pool", "review-in-ci", "coming-from", "upgrade-and-uninstall")
_WHEEL = requirement("cli,verify")
# What one of these tests does by other words: it needs another machine, or minutes.
ELSEWHERE: Mapping[str, str] = {
    f"pip install '{_WHEEL}'": "test_wheel.py::test_loads_every_command",
    f"pip install --upgrade '{_WHEEL}'": "test_wheel.py::test_loads_every_command",
    "divvy init prod": "cli/test_init.py",
    "divvy verify -s prod": "conformance/test_on_lab.py::test_passes_a_sound_lab_as_partial",
    "cp out/conformance/conformance.tar.gz prod-before.tar.gz": (
        "conformance/test_on_lab.py::test_reports_a_regression_from_the_report_before"
    ),
    "divvy verify -s prod --strict --compare last": (
        "conformance/test_on_lab.py::test_finds_the_report_that_the_cluster_keeps_in_the_next_run"
    ),
    "divvy verify -s prod --strict --compare prod-before.tar.gz": (
        "conformance/test_on_lab.py::test_reports_a_regression_from_the_report_before"
    ),
}
_ENDS = re.compile(r"divvy (destroy|stack rm)\b|kubectl annotate ")
_ASKS_THE_CLUSTER = re.compile(r"kubectl |divvy (preview|up|top)\b|divvy .*--(live|pending)\b")


def page_commands(page: str) -> list[str]:
    """Return the commands of the shell blocks of a page; one may go on in the next line."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    lines = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        joined = re.sub(r"\s*\\\n\s*", " ", block)
        lines += [re.sub(r"\s+#.*", "", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line]


def lane(command: str) -> str:
    """Return where a command runs: elsewhere, end (of a cluster), cluster, or files."""
    if command in ELSEWHERE:
        return "elsewhere"
    if _ENDS.match(command):
        return "end"
    return "cluster" if _ASKS_THE_CLUSTER.match(command) else "files"


def page_files(page: str) -> dict[str, str]:
    """Return the files that a page shows, each a block that begins with its name."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    blocks = re.findall(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def project_folder(parent: Path) -> Path:
    """Make a folder of stack files whose program is this repository's."""
    folder = parent / "folder"
    (folder / "stacks").mkdir(parents=True)
    project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": str(REPOSITORY)}))
    return folder


class Shell:
    """Runs commands as a user types them: divvy, kubectl and helm are on the path."""

    def __init__(self, folder: Path, programs: Path, kubeconfig: Path | None = None) -> None:
        self.folder = folder
        programs.mkdir()
        divvy = f'exec "{sys.executable}" -c "from divvy.cli.main import main; main()" "$@"\n'
        _program(programs / "divvy", divvy)
        _program(programs / "kubectl", f'exec "{KUBERNETES.bin / "kubectl"}" "$@"\n')
        _program(programs / "helm", f'exec "{HELM.bin / "helm"}" "$@"\n')
        named = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        identity = {
            f"GIT_{role}_{what}": f"{what}@example".lower()
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        path = f"{programs}:{os.environ['PATH']}"
        self._environment = {
            **os.environ,
            **{"PATH": path, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "80"},
            **identity,
            **named,
        }

    def run(self, command: str, expect: tuple[int, ...] = (0,), timeout: float = 200) -> str:
        """Run a line; what would ask in a terminal is told --yes."""
        if re.match(r"divvy (up|destroy)\b", command) and "--yes" not in command:
            command += " --yes"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        transcript = f"{command}\n{done.stdout}{done.stderr}"
        assert done.returncode in expect, transcript
        assert "error:" not in done.stderr or done.returncode == 1, transcript
        return done.stdout


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)

"""Pulumi programs for the engine's lab tests: a project whose resources a JSON file lists."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.divvy_command import divvy_command, divvy_environment

_PROJECT = """name: trial
runtime: {name: python}
stackConfigDir: stacks
"""
_PROGRAM = '''"""Registers what resources.json lists."""
import json
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

target = json.loads(Path("resources.json").read_text())
provider = kubernetes.Provider(
    "cluster",
    kubeconfig=target["kubeconfig"],
    namespace=target["namespace"],
    enable_config_map_mutable=target.get("mutable", True),
)
second = kubernetes.Provider(
    "second",
    kubeconfig=target["kubeconfig"],
    namespace=target["namespace"],
    enable_config_map_mutable=target.get("mutable", True),
) if any(found.get("provider") == "second" for found in target["resources"].values()) else None
made = {}
for name, found in target["resources"].items():
    options = pulumi.ResourceOptions(
        provider=second if found.get("provider") == "second" else provider,
        depends_on=[made[other] for other in found.get("needs", [])],
        protect=found.get("protect"),
        ignore_changes=found.get("ignore"),
        aliases=[pulumi.Alias(name=other) for other in found.get("aliases", [])],
    )
    metadata = {"labels": {"trial": "yes"}, "annotations": found.get("annotations", {})}
    if "called" in found:
        metadata["name"] = found["called"]
    data = dict(found["data"])
    for other in found.get("needs", []):
        data[f"from-{other}"] = made[other].metadata["name"]
    if found.get("secret"):
        data = {key: pulumi.Output.secret(value) for key, value in data.items()}
    made[name] = kubernetes.core.v1.ConfigMap(name, metadata=metadata, data=data, opts=options)
for name, resource in made.items():
    pulumi.export(name, resource.metadata["name"])
if target.get("raises"):
    raise ValueError(target["raises"])
'''


@dataclass
class Program:
    """A project in a folder, run with the real command."""

    folder: Path
    kubeconfig: Path
    namespace: str
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "stacks").mkdir(parents=True, exist_ok=True)
        (self.folder / "Pulumi.yaml").write_text(_PROJECT)
        (self.folder / "__main__.py").write_text(_PROGRAM)
        (self.folder / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")

    def write(self) -> None:
        """Write what the program registers."""
        target = {
            "kubeconfig": str(self.kubeconfig),
            "namespace": self.namespace,
            "resources": self.resources,
            **self.more,
        }
        (self.folder / "resources.json").write_text(json.dumps(target))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a divvy command in a process group of its own."""
        self.write()
        return subprocess.Popen(
            divvy_command(*arguments, "--stack=dev"),
            cwd=self.folder,
            env=divvy_environment({"PULUMI_CONFIG_PASSPHRASE": "open"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, expect: int | None = 0) -> str:
        """Run a divvy command to its end and return what it printed; None expects 0 or 2."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=120)
        expected = (0, 2) if expect is None else (expect,)
        assert process.returncode in expected, f"exit {process.returncode}: {output}"
        return output

    def up(self, *arguments: str, expect: int = 0) -> str:
        return self.run("up", "--yes", *arguments, expect=expect)

    def up_killed(self, seconds: float) -> bool:
        """Start an up and kill it, as a power cut would, that long after its first step began.

        Tell whether that left a journal: whether it was in the middle of its steps.
        """
        journal = self.folder / ".pulumi/divvy/trial/dev.journal"
        process = self.start("up", "--yes")
        while process.poll() is None and not journal.exists():
            time.sleep(0.002)
        time.sleep(seconds)
        process.kill()
        process.communicate(timeout=30)
        return journal.exists()

    def state(self) -> dict[str, dict[str, Any]]:
        """Return the recorded ConfigMaps by logical name."""
        raw = json.loads((self.folder / ".pulumi/stacks/trial/dev.json").read_text())
        return {
            resource["urn"].rsplit("::", 1)[1]: resource
            for resource in raw["checkpoint"]["latest"].get("resources", ())
            if resource["type"].endswith(":ConfigMap")
        }

"""The folder that `pulumi package add` can be given: Pulumi installs and starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import grpc
import pytest
import yaml
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from divvy.render.exports.pulumi_schema import pulumi_schema
from divvy.version_info import version
from tests.installed import copy_sources


@pytest.mark.timeout(600)
def test_answers_with_the_packages_schema_when_started_as_pulumi_does(tmp_path: Path) -> None:
    """A language host makes the environment, installs the requirements and runs the folder."""
    copy_sources(tmp_path)
    folder = tmp_path / "components"
    plugin = yaml.safe_load((folder / "PulumiPlugin.yaml").read_text())
    assert (plugin["name"], plugin["runtime"]["name"]) == ("divvy", "python")
    environment = folder / plugin["runtime"]["options"]["virtualenv"]
    venv.create(environment)
    pip = [sys.executable, "-m", "pip", f"--python={environment}", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "-r", "requirements.txt"], cwd=folder, check=True)
    # Nothing leads the plugin to the packages of this checkout.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(
        [environment / "bin/python", folder, "127.0.0.1:1"],
        cwd=tmp_path / "docs", env=clean, stdout=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        try:
            assert started.stdout is not None
            port = int(started.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                provider = provider_pb2_grpc.ResourceProviderStub(channel)
                schema = provider.GetSchema(provider_pb2.GetSchemaRequest(), timeout=60).schema
        finally:
            started.kill()
    assert json.loads(schema) == json.loads(pulumi_schema(version()))

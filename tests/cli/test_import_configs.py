"""divvy import of one tool's configurations."""

import yaml

from divvy.model import parse_cluster
from tests.divvy_command import invoke

CONFIG_MAP = """\
kind: ConfigMap
data:
  slice-4: |
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
  nothing: |
    sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}
"""


def test_imports_a_whole_configmap_and_lists_what_it_cannot_express(tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text(CONFIG_MAP)
    result = invoke("import", "nvidia-config", str(file))
    assert result.exit_code == 0
    profiles = yaml.safe_load(result.stdout)["config"]["divvy:cluster"]["profiles"]
    assert profiles == {
        "slice-4": {
            "timeSlicing": {
                "replicas": 4,
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
            }
        }
    }
    assert "not imported: nothing: sharing.timeSlicing" in result.stderr
    assert result.stdout.startswith("# not imported: nothing: sharing.timeSlicing")
    stack = yaml.safe_load(result.stdout)
    stack["config"]["divvy:cluster"]["pools"] = {"p": {"profile": "slice-4"}}
    parse_cluster(stack["config"]["divvy:cluster"])


def test_imports_mig_parted_files(tmp_path):
    file = tmp_path / "mig.yaml"
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    document = {"version": "v1", "mig-configs": {"all-1g.5gb": [entry]}}
    file.write_text(yaml.safe_dump(document))
    result = invoke("import", "mig-parted", str(file))
    assert "all-1g.5gb:\n        mig: {1g.5gb: 7}" in result.stdout
    file.write_text("version: v2\n")
    result = invoke("import", "mig-parted", str(file))
    assert result.exit_code == 1
    assert "version: is 'v2'; v1 is expected" in result.stderr

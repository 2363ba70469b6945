"""Names that rooms agree on are the same wherever they are written."""

from __future__ import annotations

import pytest
import yaml

from divvy.agent.settings import settings_from
from divvy.model import api_names
from divvy.model.api_names import Component, State, component_labels
from lab.cluster.paths import REPOSITORY
from tests.render.documents import objects_of

IMAGE = f"x@sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def rendered() -> dict[tuple[str, str], dict]:
    """Give the objects of the lab's stack, with a profile of claims, by kind and name."""
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    value = stack["config"]["divvy:cluster"]
    value["profiles"]["by-size"] = {"claims": {"shares": {}}}
    return {
        (manifest["kind"], manifest["metadata"]["name"]): manifest
        for manifest in objects_of(value, IMAGE)
    }


def test_shares_paths_and_names_between_settings_and_contract() -> None:
    settings = settings_from({"NODE_NAME": "n", "NAMESPACE": "x", "POD_NAME": "divvy"})
    assert settings.config_map == api_names.CONFIG_MAP
    assert settings.port == api_names.METRICS_PORT
    assert str(settings.cdi_folder) == api_names.CDI_FOLDER
    assert str(settings.state_folder) == api_names.STATE_FOLDER
    assert str(settings.share_folder) == api_names.SHARE_FOLDER
    assert str(settings.mps_folder) == api_names.MPS_FOLDER
    assert str(settings.driver_root) == api_names.DRIVER_ROOT


def test_gives_the_pods_their_ports_paths_and_labels(rendered: dict) -> None:
    template = rendered["DaemonSet", api_names.AGENT]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {api_names.CDI_FOLDER, api_names.STATE_FOLDER, api_names.DRIVER_ROOT} <= mounts
    (shares,) = (
        mount for mount in container["volumeMounts"] if mount["mountPath"] == api_names.RUN_FOLDER
    )
    assert api_names.SHARE_FOLDER.startswith(f"{shares['mountPath']}/")
    assert api_names.MPS_FOLDER.startswith(f"{shares['mountPath']}/")
    assert shares["mountPropagation"] == "Bidirectional"  # containers get files from there
    assert api_names.DRIVER_ROOT_VARIABLE in {entry["name"] for entry in container["env"]}
    assert container["ports"][0]["containerPort"] == api_names.METRICS_PORT
    service = rendered["Service", api_names.AGENT]["spec"]
    assert service["selector"] == template["metadata"]["labels"]
    assert service["selector"] == component_labels(Component.AGENT)
    assert service["ports"][0]["port"] == api_names.METRICS_PORT
    components = {api_names.component_of(manifest) for manifest in rendered.values()}
    assert components == set(Component)


def test_orders_states_from_good_to_bad() -> None:
    assert max(State, key=lambda state: state.severity) is State.FAILED
    assert State("Ready").severity == 0
